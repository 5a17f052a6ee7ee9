// What the other vcruntime headers and libc++ take for granted of the compiler's run-time.
#pragma once
#include <corecrt.h>
#ifndef _HAS_EXCEPTIONS
#define _HAS_EXCEPTIONS 1
#endif
