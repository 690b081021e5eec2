# Finds LibTorch by its own path and defines the imported target steptape_libtorch.
#
# The wheel's find_package(Torch) demands a CUDA toolkit when the wheel is a CUDA build; a CPU program
# does not need one. Only libtorch_cpu and libc10 are linked: a program that wants CUDA links libtorch too.
if(NOT STEPTAPE_TORCH)
  if(DEFINED ENV{STEPTAPE_TORCH})
    set(STEPTAPE_TORCH $ENV{STEPTAPE_TORCH})
  elseif(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/.torch_path)
    file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/.torch_path STEPTAPE_TORCH LIMIT_COUNT 1)
  endif()
endif()
if(NOT EXISTS "${STEPTAPE_TORCH}/include/ATen/ATen.h")
  message(FATAL_ERROR "LibTorch not found at '${STEPTAPE_TORCH}'. Run scripts/setup.sh, or pass "
                      "-DSTEPTAPE_TORCH=<folder with include/ATen and lib/libtorch_cpu.so>.")
endif()
if(NOT TARGET steptape_libtorch)
  add_library(steptape_libtorch INTERFACE IMPORTED GLOBAL)
  set_target_properties(steptape_libtorch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${STEPTAPE_TORCH}/include;${STEPTAPE_TORCH}/include/torch/csrc/api/include"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${STEPTAPE_TORCH}/include;${STEPTAPE_TORCH}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "${STEPTAPE_TORCH}/lib/libtorch_cpu.so;${STEPTAPE_TORCH}/lib/libc10.so"
    INTERFACE_LINK_OPTIONS "LINKER:-rpath,${STEPTAPE_TORCH}/lib")
endif()
