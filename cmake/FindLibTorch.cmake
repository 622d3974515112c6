# LibTorch from a libtorch folder or a Python wheel's torch folder, CPU or CUDA, without TorchConfig.cmake: that one
# wants a whole CUDA toolkit for a CUDA wheel, and our own code needs none.
#   TRIREME_TORCH        the folder with include/ and lib/ (cache variable or environment)
# Defines the imported target LibTorch::LibTorch, LibTorch_VERSION and LibTorch_DIR.

set(TRIREME_TORCH "$ENV{TRIREME_TORCH}" CACHE PATH "A libtorch folder or site-packages/torch")
find_path(LibTorch_INCLUDE_DIR ATen/core/Tensor.h HINTS ${TRIREME_TORCH}/include NO_DEFAULT_PATH)
find_library(LibTorch_CPU_LIBRARY torch_cpu HINTS ${TRIREME_TORCH}/lib NO_DEFAULT_PATH)
find_library(LibTorch_LIBRARY torch HINTS ${TRIREME_TORCH}/lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 HINTS ${TRIREME_TORCH}/lib NO_DEFAULT_PATH)
# The one OpenMP runtime of the process is the one ATen was built with.
file(GLOB LibTorch_GOMP_LIBRARY ${TRIREME_TORCH}/lib/libgomp*.so*)

if(EXISTS ${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h)
  set(version_file ${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h)
else()
  set(version_file ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include/torch/version.h)
endif()
if(EXISTS ${version_file})
  file(STRINGS ${version_file} lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" LibTorch_VERSION "${lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "set TRIREME_TORCH to a libtorch folder or to site-packages/torch (./dev does)")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
    ${LibTorch_INCLUDE_DIR} ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include)
  target_compile_definitions(LibTorch::LibTorch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO USE_RPC USE_TENSORPIPE)
  target_compile_options(LibTorch::LibTorch INTERFACE -fopenmp)
  target_link_libraries(LibTorch::LibTorch INTERFACE ${LibTorch_LIBRARY} ${LibTorch_CPU_LIBRARY} ${LibTorch_C10_LIBRARY}
    ${LibTorch_GOMP_LIBRARY})
  get_filename_component(torch_lib ${LibTorch_CPU_LIBRARY} DIRECTORY)
  target_link_options(LibTorch::LibTorch INTERFACE -Wl,-rpath,${torch_lib})
  if(TRIREME_CUDA)
    find_library(LibTorch_CUDA_LIBRARY torch_cuda HINTS ${torch_lib} NO_DEFAULT_PATH REQUIRED)
    find_library(LibTorch_C10_CUDA_LIBRARY c10_cuda HINTS ${torch_lib} NO_DEFAULT_PATH REQUIRED)
    get_filename_component(site ${TRIREME_TORCH} DIRECTORY)
    file(GLOB cuda_include ${site}/nvidia/cu*/include)
    target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE ${cuda_include} ${site}/nvidia/nccl/include)
    target_compile_definitions(LibTorch::LibTorch INTERFACE USE_C10D_NCCL)
    target_link_libraries(LibTorch::LibTorch INTERFACE
      -Wl,--no-as-needed ${LibTorch_CUDA_LIBRARY} ${LibTorch_C10_CUDA_LIBRARY} -Wl,--as-needed)
  endif()
endif()
