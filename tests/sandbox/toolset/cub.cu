// What cudafe++ reads of CUB, Thrust and <windows.h> along with libc++.
#include <cub/cub.cuh>
#include <cuda/barrier>
#include <thrust/execution_policy.h>
#include <thrust/sort.h>
#include <windows.h>

__global__ void sums(const int *in, int *out)
{
    typedef cub::BlockReduce<int, 128> Reduce;
    __shared__ typename Reduce::TempStorage room;
    const int sum = Reduce(room).Sum(in[threadIdx.x]);
    if (!threadIdx.x) *out = sum;
}

extern "C" __declspec(dllexport) int sorted(int *keys, int many, void *room, size_t *size)
{
    if (!room) return cub::DeviceScan::InclusiveSum(room, *size, keys, keys, many);
    thrust::sort(thrust::device, keys, keys + many);
    return GetLastError();
}
