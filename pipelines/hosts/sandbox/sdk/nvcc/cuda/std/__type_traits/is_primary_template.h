// CCCL 3.0 (CUDA 13.0) declares this under another name than it uses, where it finds libc++.
#pragma once
#define __test_for_primary_template __test_for_primary_std_template
#include_next <cuda/std/__type_traits/is_primary_template.h>
#undef __test_for_primary_template
