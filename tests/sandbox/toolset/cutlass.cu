// What cudafe++ reads of CUTLASS and CuTe along with libc++.
#include <cute/tensor.hpp>
#include <cutlass/array.h>
#include <cutlass/cutlass.h>
#include <cutlass/numeric_conversion.h>
#include <cutlass/numeric_types.h>

using namespace cute;

__global__ void scaled(cutlass::half_t *data, float by)
{
    auto tile = make_tensor(make_gmem_ptr(data), make_layout(make_shape(Int<4>{}, Int<8>{})));
    cutlass::Array<float, 8> row;
    CUTE_UNROLL
    for (int i = 0; i < size<1>(tile); i++) row[i] = float(tile(threadIdx.x % 4, i)) * by;
    const auto narrow = cutlass::NumericArrayConverter<cutlass::half_t, float, 8>()(row);
    CUTE_UNROLL
    for (int i = 0; i < size<1>(tile); i++) tile(threadIdx.x % 4, i) = narrow[i];
}
