# Enables the CUDA language and finds the toolkit, or says what is missing. Included by the top CMakeLists.txt under
# TRAINER_CUDA, in its own scope: languages are enabled where every target that uses them can see it.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "90a-real")  # unset would silently mean compute capability 7.5
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "TRAINER_CUDA=ON, but there is no CUDA compiler.\n"
    "  Fix: install the CUDA toolkit (12.8 or newer) and have nvcc in PATH, or set CUDACXX; or use the preset release.")
endif()
if(CMAKE_VERSION VERSION_LESS 3.26)  # older ones know no dialect CUDA20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit 12.8 REQUIRED)
if(NOT TARGET CUDA::cublasLt)
  message(FATAL_ERROR "TRAINER_CUDA=ON, but the toolkit in ${CUDAToolkit_LIBRARY_DIR} has no cublasLt.\n"
    "  Fix: install the toolkit's libcublas-dev.")
endif()
