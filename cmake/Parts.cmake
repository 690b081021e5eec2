# steptape_part(NAME [TORCH] SOURCES ... [PUBLIC target ...] [PRIVATE target ...])
#
# One folder, one static target `steptape_NAME` (alias steptape::NAME). Dependencies are direct ones only;
# scripts/check_includes.py holds the table of who may include whom.
function(steptape_part name)
  cmake_parse_arguments(PART "TORCH" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(steptape_${name} STATIC ${PART_SOURCES})
  add_library(steptape::${name} ALIAS steptape_${name})
  target_include_directories(steptape_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                     $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_link_libraries(steptape_${name} PUBLIC ${PART_PUBLIC} PRIVATE ${PART_PRIVATE} steptape_options)
  if(PART_TORCH)
    target_link_libraries(steptape_${name} PUBLIC steptape_libtorch)
  endif()
endfunction()

# steptape_precompile(TARGET FROM owner | HEADERS header ...): in joined builds with g++, the sources of TARGET start from headers
# that were parsed once, as most of what compiling them takes is parsing LibTorch's. One target compiles a set of headers (HEADERS), others of
# the same options take it (FROM). What each source includes is checked by the builds that are not joined.
function(steptape_precompile target)
  cmake_parse_arguments(PRECOMPILE "" "FROM" "HEADERS" ${ARGN})
  if(NOT CMAKE_UNITY_BUILD OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  if(PRECOMPILE_FROM)
    target_precompile_headers(${target} REUSE_FROM ${PRECOMPILE_FROM})
  else()
    target_precompile_headers(${target} PRIVATE ${PRECOMPILE_HEADERS})
  endif()
  # -fpch-preprocess: ccache asks for it. -fPIC: programs would be compiled with -fPIE, and could not take a library's headers
  target_compile_options(${target} PRIVATE -fpch-preprocess -fPIC)
endfunction()

# Warnings and sanitizers of our own code; consumers do not get them.
add_library(steptape_options INTERFACE)
# -Wrestrict: g++ 12 sees overlaps in std::string that are not there (GCC bug 105651)
target_compile_options(steptape_options INTERFACE -Wall -Wextra -Wpedantic -Werror $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(CMAKE_UNITY_BUILD)
  # Each source of a joined one is a header to -Wsubobject-linkage. From precompiled headers g++ 12 inlines more of std::string, and
  # sees lengths and bounds there that it does not have (the same bug). A compiler that holds up to 1 GB before it looks what it can
  # let go takes a twentieth less time for joined sources, and little more memory.
  target_compile_options(steptape_options INTERFACE
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage;-Wno-stringop-overflow;-Wno-stringop-overread;-Wno-array-bounds>
                         $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1000000>)
endif()
if(STEPTAPE_SANITIZE)
  # with a sanitizer's checks in between g++ 12 takes what std::optional and std::regex guard for uninitialized
  target_compile_options(steptape_options INTERFACE -fsanitize=${STEPTAPE_SANITIZE} -fno-omit-frame-pointer -g1
                                                    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(steptape_options INTERFACE -fsanitize=${STEPTAPE_SANITIZE})
endif()
if(STEPTAPE_FUZZ)
  target_compile_options(steptape_options INTERFACE -fno-sanitize-recover=all)
endif()
