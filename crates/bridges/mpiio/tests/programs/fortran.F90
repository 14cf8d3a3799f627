! Writes and reads one file through an interleaved view, with each kind of call. Compiled with -DF08
! it uses mpi_f08, with -DMPIF mpif.h, and the module mpi otherwise.
program fortran
#if defined(F08)
  use mpi_f08
#define FILE_TYPE type(MPI_File)
#define DATATYPE_TYPE type(MPI_Datatype)
#define REQUEST_TYPE type(MPI_Request)
#define STATUS_TYPE type(MPI_Status)
#define STATUS_SHAPE
#else
#if !defined(MPIF)
  use mpi
#endif
#define FILE_TYPE integer
#define DATATYPE_TYPE integer
#define REQUEST_TYPE integer
#define STATUS_TYPE integer
#define STATUS_SHAPE (MPI_STATUS_SIZE)
#endif
  implicit none
#if defined(MPIF)
  include 'mpif.h'
#endif
  integer, parameter :: n = 50
  FILE_TYPE :: fh
  DATATYPE_TYPE :: filetype, resized
  REQUEST_TYPE :: request
  STATUS_TYPE :: status STATUS_SHAPE
  integer :: values(n), found(n), i, rank, ranks, ierr, count
  integer(MPI_OFFSET_KIND) :: offset
  integer(MPI_ADDRESS_KIND) :: lower, extent
  character(len=256) :: path

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  call get_command_argument(1, path)
  call MPI_File_open(MPI_COMM_WORLD, trim(path), MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, fh, ierr)
  call check(ierr, 'open')
  call MPI_Type_vector(5, 2, 4, MPI_INTEGER, filetype, ierr)
  lower = 0
  extent = 4 * ranks * 20
  call MPI_Type_create_resized(filetype, lower, extent, resized, ierr)
  call MPI_Type_commit(resized, ierr)
  offset = 4 * rank * 20
  call MPI_File_set_view(fh, offset, MPI_INTEGER, resized, 'native', MPI_INFO_NULL, ierr)
  call check(ierr, 'set_view')
  do i = 1, n
    values(i) = 1000 * rank + i
  end do
  call MPI_File_write_all(fh, values, n, MPI_INTEGER, status, ierr)
  call check(ierr, 'write_all')
  call MPI_Get_count(status, MPI_INTEGER, count, ierr)
  if (count /= n) call check(1, 'get_count')
  call MPI_File_write(fh, values, n, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
  call check(ierr, 'write')
  offset = 2 * n
  call MPI_File_write_at_all(fh, offset, values, n, MPI_INTEGER, status, ierr)
  call check(ierr, 'write_at_all')
  offset = 3 * n
  call MPI_File_iwrite_at(fh, offset, values, n, MPI_INTEGER, request, ierr)
  call check(ierr, 'iwrite_at')
  call MPI_Wait(request, status, ierr)
  call MPI_Get_count(status, MPI_INTEGER, count, ierr)
  if (count /= n) call check(2, 'get_count of a request')
  offset = 4 * n
  call MPI_File_seek(fh, offset, MPI_SEEK_SET, ierr)
  call MPI_File_write_all_begin(fh, values, n, MPI_INTEGER, ierr)
  call MPI_File_write_all_end(fh, values, status, ierr)
  call check(ierr, 'write_all_end')
  call MPI_File_sync(fh, ierr)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call MPI_File_sync(fh, ierr)
  offset = n
  found = 0
  call MPI_File_read_at_all(fh, offset, found, n, MPI_INTEGER, status, ierr)
  call check(ierr, 'read_at_all')
  if (any(found /= values)) call check(3, 'read')
  call MPI_File_close(fh, ierr)
  call check(ierr, 'close')
  call MPI_Finalize(ierr)

contains
  subroutine check(code, call)
    integer, intent(in) :: code
    character(len=*), intent(in) :: call
    if (code == 0) return
    print *, 'rank ', rank, ': ', call, ': error ', code
    call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
  end subroutine
end program
