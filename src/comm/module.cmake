# The sums over ranks: g++ 12 vectorizes such loops fully only at -O3.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/comm/reduce.cc PROPERTIES COMPILE_OPTIONS -O3)
