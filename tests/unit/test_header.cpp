// The public header also serves C++: this file only has to compile and link.
#include "deepgemm.h"

int main()
{
    dg_tensor t = dg_matrix(nullptr, DG_FLOAT32, DG_CPU, 2, 3);
    return dg_transposed(t).shape[0] == 3 && dg_version()[0] == '0' ? 0 : 1;
}
