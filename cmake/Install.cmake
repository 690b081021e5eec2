# What `cmake --install` lays down, and the two targets that programs link, here and installed alike:
#   steptape::steptape  records and replays
#   steptape::player    replays a trace; holds no recorder and no session
#
# The parts are static libraries, so that a program holds what it calls and nothing else.
include(CMakePackageConfigHelpers)

set(parts)
foreach(part trace storage live recorder guards replayer session)
  if(NOT TARGET steptape_${part})
    message(STATUS "steptape: nothing to install without ${part}")
    return()
  endif()
  set_target_properties(steptape_${part} PROPERTIES EXPORT_NAME ${part})
  list(APPEND parts steptape_${part})
endforeach()

foreach(surface "steptape session" "player replayer")
  separate_arguments(surface)
  list(GET surface 0 name)
  list(GET surface 1 part)
  add_library(steptape_surface_${name} INTERFACE)
  add_library(steptape::${name} ALIAS steptape_surface_${name})
  set_target_properties(steptape_surface_${name} PROPERTIES EXPORT_NAME ${name})
  target_link_libraries(steptape_surface_${name} INTERFACE steptape_${part})
  target_compile_features(steptape_surface_${name} INTERFACE cxx_std_20)
  target_include_directories(steptape_surface_${name} INTERFACE
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()

set(STEPTAPE_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/steptape)
install(TARGETS ${parts} steptape_options steptape_surface_steptape steptape_surface_player
        EXPORT steptapeTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT steptapeTargets NAMESPACE steptape:: DESTINATION ${STEPTAPE_PACKAGE_DIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/steptape DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/steptapeConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/steptapeConfig.cmake
                              INSTALL_DESTINATION ${STEPTAPE_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/steptapeConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/steptapeConfig.cmake
              ${PROJECT_BINARY_DIR}/steptapeConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/LibTorch.cmake
        DESTINATION ${STEPTAPE_PACKAGE_DIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# found by programs that have it beside them, in the dynamic linker's path, or in STEPTAPE_CUDA_BACKEND
if(TARGET steptape_cuda)
  install(TARGETS steptape_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

foreach(program steptape steptape-torch)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

# `make package`: what is installed, as a .deb and as a .tar.gz. LibTorch is no package of Debian's: programs name theirs.
set(CPACK_GENERATOR "TGZ;DEB")
set(CPACK_PACKAGE_CONTACT "The Steptape project")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Records a LibTorch training step and replays it bit-exactly, or says why not")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_DEPENDS
    "libfmt-dev, libprotobuf-dev, libtbb-dev, libxxhash-dev, libzstd-dev, pkg-config, libprotobuf-lite32, libtbb12, libxxhash0, libzstd1")
include(CPack)
