// A parameter of libc++'s has the name of a keyword of Microsoft's, which cudafe++ knows as well.
#pragma once
#define __except wcw_except
#include_next <__exception/exception_ptr.h>
#undef __except
