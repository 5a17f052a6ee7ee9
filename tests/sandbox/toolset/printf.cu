// C's printf and variable arguments, on the device and the host, as nvcc takes them by default.
#include <cstdio>
#include <stdarg.h>

struct big {
    int a[3];
};

__global__ void say(int n) { printf("%d\n", n); }

static int sum(int n, ...)
{
    va_list args, again;
    va_start(args, n);
    va_copy(again, args);
    int total = 0;
    for (int i = 0; i < n; i++) total += va_arg(args, int);
    total += (int)va_arg(args, double);
    total += va_arg(args, big).a[2];
    va_end(args);
    return total + va_arg(again, int) * 1000;
}

extern "C" __declspec(dllexport) int answer(void)
{
    big b = {{1, 2, 30}};
    char text[8];
    return sum(3, 1, 2, 3, 100.0, b) + snprintf(text, 8, "%d %s", 7, "x");
}
