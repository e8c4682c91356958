# OpenBLAS built for OpenMP. The pthread build that distributions make the default keeps a second thread pool, which
# fights OpenMP's for the cores: measured 1.5x slower at two threads. Its own folder is looked into first.
# Defines OpenBlasOpenMP::OpenBlasOpenMP.
find_path(OpenBlasOpenMP_INCLUDE_DIR cblas.h
  PATH_SUFFIXES "${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp" openblas-openmp openblas)
find_library(OpenBlasOpenMP_LIBRARY NAMES openblas
  PATH_SUFFIXES "${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp" openblas-openmp)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenBlasOpenMP
  REQUIRED_VARS OpenBlasOpenMP_LIBRARY OpenBlasOpenMP_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install libopenblas-openmp-dev (scripts/setup.sh does)")
if(OpenBlasOpenMP_FOUND AND NOT TARGET OpenBlasOpenMP::OpenBlasOpenMP)
  add_library(OpenBlasOpenMP::OpenBlasOpenMP UNKNOWN IMPORTED)
  # The library's soname is that of every OpenBLAS build; the run path makes the program load this one.
  get_filename_component(_openblas_dir "${OpenBlasOpenMP_LIBRARY}" DIRECTORY)
  set_target_properties(OpenBlasOpenMP::OpenBlasOpenMP PROPERTIES
    IMPORTED_LOCATION "${OpenBlasOpenMP_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${OpenBlasOpenMP_INCLUDE_DIR}"
    INTERFACE_LINK_OPTIONS "LINKER:--disable-new-dtags;LINKER:-rpath,${_openblas_dir}")
endif()
