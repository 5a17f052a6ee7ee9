// CUTLASS includes it, and calls nothing of it without __F16C__.
#pragma once
#include <intrin.h>
