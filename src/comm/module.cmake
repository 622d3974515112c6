# The sums over ranks: g++ 12 vectorizes such loops fully only at -O3.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/comm/reduce.cc PROPERTIES COMPILE_OPTIONS -O3)
# The one file that talks to c10d's Gloo group, whose headers mention Gloo's own.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/comm/gloo_transport.cc PROPERTIES
                            INCLUDE_DIRECTORIES ${CMAKE_SOURCE_DIR}/src/comm/gloo_stubs SKIP_PRECOMPILE_HEADERS ON)
if(MPI_FOUND)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/comm/mpi_transport.cc PROPERTIES COMPILE_DEFINITIONS TRIREME_MPI
                              SKIP_PRECOMPILE_HEADERS ON)
  target_link_libraries(trireme_comm PUBLIC MPI::MPI_CXX)
endif()
