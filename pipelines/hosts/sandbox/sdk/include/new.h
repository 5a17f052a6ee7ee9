// The handler that operator new asks for memory when there is none.
#pragma once
#include <vcruntime_new.h>
