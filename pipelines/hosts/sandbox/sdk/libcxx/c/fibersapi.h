// Wine has the functions of fibres in <winbase.h>.
#pragma once
#include <windows.h>
