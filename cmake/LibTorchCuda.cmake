# Defines the imported target steptape_libtorch_cuda where this LibTorch was built for CUDA and CUDA's headers are found: beside
# the wheel, where its nvidia-cuda-runtime package puts them, or in a CUDA toolkit. No GPU, no driver and no nvcc is needed.
if(TARGET steptape_libtorch_cuda)
  return()
endif()
if(NOT EXISTS "${STEPTAPE_TORCH}/lib/libtorch_cuda.so")
  message(STATUS "steptape: no CUDA backend, since ${STEPTAPE_TORCH} is for the CPU alone")
  return()
endif()
file(STRINGS "${STEPTAPE_TORCH}/include/torch/headeronly/version.h" STEPTAPE_TORCH_MINOR REGEX "define TORCH_VERSION_MINOR ")
if(NOT STEPTAPE_TORCH_MINOR MATCHES " 11$")
  message(STATUS "steptape: no CUDA backend: it is known to be right with the graphs of torch 2.11 alone")
  return()
endif()
file(GLOB STEPTAPE_CUDA_WHEELS "${STEPTAPE_TORCH}/../nvidia/cu*/include" "${STEPTAPE_TORCH}/../nvidia/cuda_runtime/include")
find_path(STEPTAPE_CUDA_INCLUDE cuda_runtime_api.h
          HINTS ${STEPTAPE_CUDA_WHEELS} ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES include NO_CACHE)
if(STEPTAPE_CUDA_INCLUDE)
  file(GLOB STEPTAPE_CUDART "${STEPTAPE_CUDA_INCLUDE}/../lib/libcudart.so*" "${STEPTAPE_CUDA_INCLUDE}/../lib64/libcudart.so*")
endif()
if(NOT STEPTAPE_CUDART)
  message(STATUS "steptape: no CUDA backend, since there are no headers and runtime of CUDA: install nvidia-cuda-runtime from "
                 "PyPI beside torch, or a CUDA toolkit")
  return()
endif()
list(GET STEPTAPE_CUDART 0 STEPTAPE_CUDART)
cmake_path(NORMAL_PATH STEPTAPE_CUDART)
cmake_path(GET STEPTAPE_CUDART PARENT_PATH STEPTAPE_CUDART_DIR)
add_library(steptape_libtorch_cuda INTERFACE IMPORTED GLOBAL)
# --no-as-needed: CUDA's operators register themselves, and nothing of them is named
set_target_properties(steptape_libtorch_cuda PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "${STEPTAPE_CUDA_INCLUDE}"
  INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${STEPTAPE_CUDA_INCLUDE}"
  INTERFACE_LINK_LIBRARIES "-Wl,--push-state,--no-as-needed;${STEPTAPE_TORCH}/lib/libtorch_cuda.so;${STEPTAPE_TORCH}/lib/libc10_cuda.so;${STEPTAPE_CUDART};-Wl,--pop-state;steptape_libtorch"
  INTERFACE_LINK_OPTIONS "LINKER:-rpath,${STEPTAPE_TORCH}/lib;LINKER:-rpath,${STEPTAPE_CUDART_DIR};LINKER:--allow-shlib-undefined")
