# What the product takes beside the C library. A module links the target of what it uses:
#   sl_uring    liburing, with SL_HAVE_URING defined where it is there (SL_URING: AUTO, ON, OFF)
#   sl_xxhash   xxhash.h alone, compiled into its user: no library to link
# SL_PC_LIBS_PRIVATE collects what a static link of libsluice needs, for sluice.pc.

set(SL_URING AUTO CACHE STRING "Read through io_uring: AUTO (where liburing is found), ON or OFF")
set_property(CACHE SL_URING PROPERTY STRINGS AUTO ON OFF)

set(SL_PC_LIBS_PRIVATE "-lm -pthread")
find_package(Threads REQUIRED)
find_package(PkgConfig)

add_library(sl_uring INTERFACE)
if(SL_URING STREQUAL "ON" OR (SL_URING STREQUAL "AUTO" AND NOT CMAKE_CROSSCOMPILING))
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(LIBURING IMPORTED_TARGET liburing)
  endif()
  if(LIBURING_FOUND)
    target_link_libraries(sl_uring INTERFACE PkgConfig::LIBURING)
    target_compile_definitions(sl_uring INTERFACE SL_HAVE_URING)
    string(PREPEND SL_PC_LIBS_PRIVATE "-luring ")
  elseif(SL_URING STREQUAL "ON")
    message(FATAL_ERROR "SL_URING is ON and liburing was not found (Debian: liburing-dev)")
  else()
    message(STATUS "liburing was not found: reads go through the pool of threads alone")
  endif()
endif()

# A header for every architecture, so a cross build borrows it from the machine that builds: a copy,
# because the folder around it holds headers of that machine.
find_path(SL_XXHASH_DIR xxhash.h PATHS /usr/include NO_CMAKE_FIND_ROOT_PATH)
if(NOT SL_XXHASH_DIR)
  message(FATAL_ERROR "xxhash.h was not found (Debian: libxxhash-dev)")
endif()
set(sl_xxhash_include ${SL_XXHASH_DIR})
if(CMAKE_CROSSCOMPILING)
  set(sl_xxhash_include ${PROJECT_BINARY_DIR}/include)
  configure_file(${SL_XXHASH_DIR}/xxhash.h ${sl_xxhash_include}/xxhash.h COPYONLY)
endif()
add_library(sl_xxhash INTERFACE)
target_include_directories(sl_xxhash SYSTEM INTERFACE ${sl_xxhash_include})
target_compile_definitions(sl_xxhash INTERFACE XXH_INLINE_ALL)
