// std::complex, with Thrust's and CCCL's. The numbers are those of Python's cmath.
#include <complex>
#include <cuda/std/complex>
#include <thrust/complex.h>

typedef std::complex<double> Z;

__global__ void product(thrust::complex<float> *x, cuda::std::complex<float> *y)
{
    x[0] *= thrust::complex<float>(y[0].real(), y[0].imag());
}

static int differs(Z got, double re, double im)
{
    return std::abs(got - Z(re, im)) > 1e-12 * (1 + std::abs(Z(re, im)));
}

extern "C" __declspec(dllexport) int wrong(void)
{
    const Z z(1.5, -0.75), w(-2, 0.25);
    thrust::complex<double> there(z);
    std::complex<float> narrow(z), huge(1e38f, 1e38f);
    return differs(z * w, -2.8125, 1.875) + differs(z / w, -0.784615384615384615, 0.276923076923076923)
        + differs(2.0 - z, 0.5, 0.75)
        + differs(std::exp(z), 3.2792020065198244, -3.0548929807153673)
        + differs(std::log(z), 0.5170368837652692, -0.4636476090008061)
        + differs(std::sqrt(z), 1.2603672050487593, -0.2975323370029233)
        + differs(std::pow(z, w), 0.19638216999643449, 0.34761530401598156)
        + differs(std::sin(z), 1.2914400857052224, -0.058168384501671194) + differs(Z(there), 1.5, -0.75)
        + (narrow.imag() != -0.75f) + !(std::abs(huge / huge - 1.0f) < 1e-6f) + (std::norm(z) != 2.8125);
}
