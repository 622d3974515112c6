# The element loops are written to be vectorised; neither errno nor floating-point traps are looked at anywhere. Sums
# keep their order (no -ffast-math), and the code runs on any x86-64 (no -march).
set(kernel_loops rms_norm.cc rope.cc swiglu.cc cross_entropy.cc embedding.cc update.cc)
list(TRANSFORM kernel_loops PREPEND ${CMAKE_SOURCE_DIR}/src/kernels/)
set_source_files_properties(${kernel_loops} PROPERTIES COMPILE_OPTIONS "-O3;-fno-math-errno;-fno-trapping-math")
