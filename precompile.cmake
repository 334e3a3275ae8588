# Parses the headers that most sources include once for all of them: Abseil's status and strings and what
# they stand on take about a second of a source, gtest and gmock another, gRPC and our messages one more. Not with ccache, which knows
# nothing of precompiled headers. That each file still names what it uses is tests/tidy_test.cc's to find.
if(CMAKE_CXX_COMPILER_LAUNCHER)
  return()
endif()

set(common_headers <algorithm> <array> <cstdint> <cstring> <filesystem> <functional> <map> <memory>
  <optional> <span> <string> <utility> <vector>
  <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h>)
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  # json.hpp instantiates its parser in whoever includes it. Clang keeps that with the header; gcc would
  # do it once more in every source.
  list(APPEND common_headers <nlohmann/json.hpp>)
endif()

# precompiled(name header... [OPTIONS option...] [LIBRARIES library...]): what targets that are compiled
# with these options and libraries share.
file(WRITE ${PROJECT_BINARY_DIR}/empty.cc "")
function(precompiled name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "OPTIONS;LIBRARIES")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/empty.cc)
  target_precompile_headers(${name} PRIVATE ${arg_UNPARSED_ARGUMENTS})
  target_compile_options(${name} PRIVATE ${arg_OPTIONS})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} warnings)
endfunction()
precompiled(precompiled_for_libraries ${common_headers})
precompiled(precompiled_for_wire ${common_headers} <grpcpp/grpcpp.h> <nightshift/v1/jobs.pb.h>
  LIBRARIES proto)
precompiled(precompiled_for_tests ${common_headers} <gmock/gmock.h> <gtest/gtest.h>
  OPTIONS -O0 LIBRARIES GTest::gmock)
precompiled(precompiled_for_fuzzed ${common_headers} OPTIONS -fsanitize=fuzzer-no-link)

# Every target below `folder` that is compiled with our warnings takes part; a MODULE is
# position-independent, which its headers would have to be as well.
function(share_headers folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    get_target_property(options ${target} COMPILE_OPTIONS)
    get_target_property(libraries ${target} LINK_LIBRARIES)
    if(type STREQUAL MODULE_LIBRARY OR NOT warnings IN_LIST libraries)
      continue()
    elseif(-O0 IN_LIST options)
      target_precompile_headers(${target} REUSE_FROM precompiled_for_tests)
    elseif(-fsanitize=fuzzer-no-link IN_LIST options)
      target_precompile_headers(${target} REUSE_FROM precompiled_for_fuzzed)
    elseif(proto IN_LIST libraries OR client IN_LIST libraries)
      target_precompile_headers(${target} REUSE_FROM precompiled_for_wire)
    else()
      target_precompile_headers(${target} REUSE_FROM precompiled_for_libraries)
    endif()
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below ${folders})
    share_headers(${below})
  endforeach()
endfunction()
foreach(folder kernels engine server client tests)
  share_headers(${PROJECT_SOURCE_DIR}/${folder})
endforeach()
