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

# Warnings and sanitizers of our own code; consumers do not get them.
add_library(steptape_options INTERFACE)
# -Wrestrict: g++ 12 sees overlaps in std::string that are not there (GCC bug 105651)
target_compile_options(steptape_options INTERFACE -Wall -Wextra -Wpedantic -Werror $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(CMAKE_UNITY_BUILD) # each source of a joined one is a header to this warning
  target_compile_options(steptape_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
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
