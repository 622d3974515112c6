# The innermost loops, once for each instruction set and chosen at run time; everything else runs on any x86-64. Sums keep
# their order (no -ffast-math), but neither errno nor floating-point traps are looked at anywhere.
set(loops ${CMAKE_SOURCE_DIR}/src/kernels/loops_)
set(loop_options -O3 -fno-math-errno -fno-trapping-math)
set_source_files_properties(${loops}baseline.cc PROPERTIES COMPILE_OPTIONS "${loop_options}" SKIP_PRECOMPILE_HEADERS ON)
set_source_files_properties(${loops}avx2.cc PROPERTIES SKIP_PRECOMPILE_HEADERS ON
                            COMPILE_OPTIONS "${loop_options};-mavx2;-mfma")
set_source_files_properties(${loops}avx512.cc PROPERTIES SKIP_PRECOMPILE_HEADERS ON
  COMPILE_OPTIONS "${loop_options};-mfma;-mavx512f;-mavx512dq;-mavx512bw;-mavx512vl;-mprefer-vector-width=512")
if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
  set_source_files_properties(${loops}avx2.cc ${loops}avx512.cc PROPERTIES HEADER_FILE_ONLY ON)  # not compiled
endif()
