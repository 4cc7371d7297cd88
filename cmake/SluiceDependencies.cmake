# What the product takes beside the C library. A module links the target of what it uses:
#   sl_uring    liburing, with SL_HAVE_URING defined where it is there (SL_URING: AUTO, ON, OFF)
#   sl_xxhash   xxhash.h alone, compiled into its user: no library to link
#   sl_histedit histedit.h alone: a chat loads libedit when it starts
#   sl_microhttpd  libmicrohttpd, of the server alone, where SL_HAVE_MICROHTTPD is true (SL_SERVER: AUTO, ON, OFF)
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

set(SL_SERVER AUTO CACHE STRING "Build the server: AUTO (where libmicrohttpd is found), ON or OFF")
set_property(CACHE SL_SERVER PROPERTY STRINGS AUTO ON OFF)
set(SL_HAVE_MICROHTTPD FALSE)
if(SL_SERVER STREQUAL "ON" OR (SL_SERVER STREQUAL "AUTO" AND NOT CMAKE_CROSSCOMPILING))
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(MICROHTTPD IMPORTED_TARGET libmicrohttpd>=0.9.75)
  endif()
  if(MICROHTTPD_FOUND)
    set(SL_HAVE_MICROHTTPD TRUE)
    add_library(sl_microhttpd INTERFACE)
    target_link_libraries(sl_microhttpd INTERFACE PkgConfig::MICROHTTPD)
  elseif(SL_SERVER STREQUAL "ON")
    message(FATAL_ERROR "SL_SERVER is ON and libmicrohttpd was not found (Debian: libmicrohttpd-dev)")
  else()
    message(STATUS "libmicrohttpd was not found: the server is not built")
  endif()
endif()

# sl_header_only(<target> <header> <package>): an interface to one header that is the same on every
# architecture, so that a cross build borrows it from the machine that builds: as a copy, because the
# folder around it holds headers of that machine.
function(sl_header_only target header package)
  find_path(${target}_DIR ${header} PATHS /usr/include NO_CMAKE_FIND_ROOT_PATH)
  if(NOT ${target}_DIR)
    message(FATAL_ERROR "${header} was not found (Debian: ${package})")
  endif()
  set(folder ${${target}_DIR})
  if(CMAKE_CROSSCOMPILING)
    set(folder ${PROJECT_BINARY_DIR}/include)
    configure_file(${${target}_DIR}/${header} ${folder}/${header} COPYONLY)
  endif()
  add_library(${target} INTERFACE)
  target_include_directories(${target} SYSTEM INTERFACE ${folder})
endfunction()

sl_header_only(sl_xxhash xxhash.h libxxhash-dev)
target_compile_definitions(sl_xxhash INTERFACE XXH_INLINE_ALL)
sl_header_only(sl_histedit histedit.h libedit-dev)
