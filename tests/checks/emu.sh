# Every kernel on the emulated GPU, mutants of them, and the emulation's own parts. EMU_SEEDS: how many for each case.
exec "$BUILD/emu/emu" --suite
