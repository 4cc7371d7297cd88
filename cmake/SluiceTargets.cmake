# One OBJECT library per folder of src/, so that a floor can be built and tested without those above.

add_library(sl_options INTERFACE)
target_compile_options(sl_options INTERFACE
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith -Wwrite-strings
  # The bits of every number are part of the product: see docs/numerics.md.
  -ffp-contract=off -fno-math-errno -fno-trapping-math
  $<$<BOOL:${SL_WERROR}>:-Werror> $<$<BOOL:${SL_NATIVE}>:-march=native>)
target_include_directories(sl_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
# A library that ends up unused costs pages of every budget.
target_link_options(sl_options INTERFACE LINKER:--as-needed)
target_compile_definitions(sl_options INTERFACE $<$<BOOL:${SL_SEAL_TRAP}>:SL_SEAL_TRAP>
  SL_VERSION="${PROJECT_VERSION}")
if(SL_SANITIZE)
  target_compile_options(sl_options INTERFACE -fsanitize=${SL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(sl_options INTERFACE -fsanitize=${SL_SANITIZE})
endif()

if(SL_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "SL_FUZZ needs clang, found ${CMAKE_C_COMPILER_ID}: cmake --preset fuzz")
  endif()
  target_compile_options(sl_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# sl_module(<name> <sources...>): the OBJECT library sl_<name>.
function(sl_module name)
  add_library(sl_${name} OBJECT ${ARGN})
  target_link_libraries(sl_${name} PUBLIC sl_options Threads::Threads)
  set_property(GLOBAL APPEND PROPERTY SL_MODULES sl_${name})
endfunction()

# sl_test(<name> SOURCES ... MODULES base text ... [LIBS ...] [ARGS ...] [LABELS ...] [PLAIN]): a cmocka
# program that is linked with the objects of the modules and run by ctest. Exit code 77 counts as
# skipped. PLAIN: no cmocka; such a test is built for other machines as well, which have none.
# Labels with a meaning: slow (not in the quick preset), threads (also run under the thread sanitizer),
# no-sanitizer (measures memory or time: not run under sanitizers).
function(sl_test name)
  cmake_parse_arguments(T "PLAIN" "" "SOURCES;MODULES;LIBS;ARGS;LABELS" ${ARGN})
  if(CMAKE_CROSSCOMPILING AND NOT T_PLAIN)
    return()
  endif()
  add_executable(${name} ${T_SOURCES})
  foreach(m ${T_MODULES})
    target_link_libraries(${name} PRIVATE sl_${m})
  endforeach()
  target_link_libraries(${name} PRIVATE sl_options Threads::Threads
    $<$<NOT:$<BOOL:${T_PLAIN}>>:cmocka> ${T_LIBS} m)
  target_compile_definitions(${name} PRIVATE SL_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
    SL_MODELS_DIR="${PROJECT_SOURCE_DIR}/models" SL_TEST_SCRATCH="${CMAKE_CURRENT_BINARY_DIR}")
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} ${T_ARGS})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
  if(T_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}")
  endif()
endfunction()
