/// Preloaded into a program, makes some of its calls on files fail, wait or be its last. STORAGE_FAULT says which:
///
///   STORAGE_FAULT="op=fsync,rename path=*/index.h5* rank=0 at=2 times=1 do=ENOSPC" LD_PRELOAD=libstorage_faults.so ...
///
///   op      some of open (to write), open_read, fallocate, truncate, write, write_direct, fsync, close, rename, mkdir,
///           remove; left out: all
///   path    a shell pattern, whose * matches slashes too; of a rename either path; left out: all
///   rank    of MPI_COMM_WORLD, from Open MPI's variable; left out: all
///   at      the first call that is struck, counted from 1 among those that match; left out: 1
///   times   how many are struck in a row; 0: all from there on; left out: 1
///   do      ENOSPC, EIO, ...: the call fails so
///           kill, kill_after: the call is replaced, or followed, by SIGKILL
///           wait: a second passes before it
///
/// The first call that is struck is told of on stderr.

#include <dlfcn.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <map>
#include <sstream>
#include <string>

namespace {

/// A path as calls have it: a name below a folder that is open, or a descriptor alone.
struct Place {
  int fd;
  const char* name = "";

  std::string path() const {
    if (name[0] == '/') return name;
    char target[4096] = {};
    const std::string link = fd == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/" + std::to_string(fd);
    if (readlink(link.c_str(), target, sizeof target - 1) < 0) return name;
    return name[0] == '\0' ? target : std::string(target) + "/" + name;
  }
};

class Fault {
 public:
  Fault() {
    const char* const text = getenv("STORAGE_FAULT");
    std::istringstream words(text != nullptr ? text : "");
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      settings_[word.substr(0, equals)] = word.substr(equals + 1);
    }
    const char* const rank = getenv("OMPI_COMM_WORLD_RANK");
    is_here_ = !settings_.empty() && (!settings_.contains("rank") || (rank != nullptr && settings_["rank"] == rank));
    ops_ = "," + settings_["op"] + ",";
    pattern_ = settings_.contains("path") ? settings_["path"] : "*";
    at_ = settings_.contains("at") ? std::stol(settings_["at"]) : 1;
    times_ = settings_.contains("times") ? std::stol(settings_["times"]) : 1;
    action_ = settings_["do"];
  }

  bool strikes(const char* op, std::initializer_list<Place> places) {
    if (!is_here_ || !has(op)) return false;
    const auto matches = [&](const Place& place) { return fnmatch(pattern_.c_str(), place.path().c_str(), 0) == 0; };
    const Place* const place = std::find_if(places.begin(), places.end(), matches);
    if (place == places.end()) return false;
    const long call = ++num_matched_;
    if (call == at_) fprintf(stderr, "storage fault: %s of %s\n", op, place->path().c_str());
    return call >= at_ && (times_ == 0 || call < at_ + times_);
  }

  const std::string& action() const { return action_; }

  int error() const {
    for (int number = 1; number < 200; ++number) {
      const char* const name = strerrorname_np(number);
      if (name != nullptr && action_ == name) return number;
    }
    fprintf(stderr, "STORAGE_FAULT: do=%s is no errno\n", action_.c_str());
    abort();
  }

 private:
  bool has(const char* op) const {
    std::string word(",");
    word += op;
    word += ',';
    return ops_ == ",," || ops_.find(word) != std::string::npos;
  }

  std::map<std::string, std::string> settings_;
  bool is_here_ = false;
  std::string ops_, pattern_, action_;
  long at_ = 1, times_ = 1;
  std::atomic<long> num_matched_ = 0;
};

Fault& fault() {
  static Fault* const fault = new Fault;  // never destroyed: calls go on while the program ends
  return *fault;
}

/// Does what is in store for a call.
template <typename Call>
auto strike(Call call) -> decltype(call()) {
  const std::string& action = fault().action();
  if (action == "wait") {
    usleep(1'000'000);
    return call();
  }
  if (action == "kill_after") call();
  if (action.starts_with("kill")) kill(getpid(), SIGKILL);
  errno = fault().error();
  return -1;
}

template <typename Call>
auto with_fault(const char* op, std::initializer_list<Place> places, Call call) -> decltype(call()) {
  return fault().strikes(op, places) ? strike(call) : call();
}

/// The function that the program would have called.
template <typename Function>
Function* next(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define NEXT(name) next(&::name, #name)

const char* op_of_write(int fd) { return (fcntl(fd, F_GETFL) & O_DIRECT) != 0 ? "write_direct" : "write"; }

const char* op_of_open(int flags) { return (flags & (O_ACCMODE | O_CREAT)) == O_RDONLY ? "open_read" : "open"; }

}  // namespace

extern "C" {

#define MODE_OF_OPEN               \
  mode_t mode = 0;                 \
  if ((flags & O_CREAT) != 0) {    \
    va_list arguments;             \
    va_start(arguments, flags);    \
    mode = va_arg(arguments, int); \
    va_end(arguments);             \
  }

int open(const char* path, int flags, ...) {
  MODE_OF_OPEN
  return with_fault(op_of_open(flags), {{AT_FDCWD, path}}, [&] { return NEXT(open)(path, flags, mode); });
}
int open64(const char* path, int flags, ...) {
  MODE_OF_OPEN
  return with_fault(op_of_open(flags), {{AT_FDCWD, path}}, [&] { return NEXT(open64)(path, flags, mode); });
}
int openat(int folder, const char* path, int flags, ...) {
  MODE_OF_OPEN
  return with_fault(op_of_open(flags), {{folder, path}}, [&] { return NEXT(openat)(folder, path, flags, mode); });
}
int openat64(int folder, const char* path, int flags, ...) {
  MODE_OF_OPEN
  return with_fault(op_of_open(flags), {{folder, path}}, [&] { return NEXT(openat64)(folder, path, flags, mode); });
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  return with_fault("fallocate", {{fd}}, [&] { return NEXT(fallocate)(fd, mode, offset, bytes); });
}
int fallocate64(int fd, int mode, off64_t offset, off64_t bytes) {
  return with_fault("fallocate", {{fd}}, [&] { return NEXT(fallocate64)(fd, mode, offset, bytes); });
}
int ftruncate(int fd, off_t bytes) noexcept {
  return with_fault("truncate", {{fd}}, [&] { return NEXT(ftruncate)(fd, bytes); });
}
int ftruncate64(int fd, off64_t bytes) noexcept {
  return with_fault("truncate", {{fd}}, [&] { return NEXT(ftruncate64)(fd, bytes); });
}
ssize_t write(int fd, const void* from, size_t bytes) {
  return with_fault(op_of_write(fd), {{fd}}, [&] { return NEXT(write)(fd, from, bytes); });
}
ssize_t pwrite(int fd, const void* from, size_t bytes, off_t offset) {
  return with_fault(op_of_write(fd), {{fd}}, [&] { return NEXT(pwrite)(fd, from, bytes, offset); });
}
ssize_t pwrite64(int fd, const void* from, size_t bytes, off64_t offset) {
  return with_fault(op_of_write(fd), {{fd}}, [&] { return NEXT(pwrite64)(fd, from, bytes, offset); });
}
int fsync(int fd) {
  return with_fault("fsync", {{fd}}, [&] { return NEXT(fsync)(fd); });
}
int fdatasync(int fd) {
  return with_fault("fsync", {{fd}}, [&] { return NEXT(fdatasync)(fd); });
}
int close(int fd) {
  const bool is_struck = fault().strikes("close", {{fd}});
  const int result = NEXT(close)(fd);  // as Linux does it: the descriptor is gone whatever is said of it
  return is_struck ? strike([&] { return result; }) : result;
}
int rename(const char* from, const char* to) noexcept {
  return with_fault("rename", {{AT_FDCWD, from}, {AT_FDCWD, to}}, [&] { return NEXT(rename)(from, to); });
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return with_fault("rename", {{from_folder, from}, {to_folder, to}},
                    [&] { return NEXT(renameat)(from_folder, from, to_folder, to); });
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return with_fault("rename", {{from_folder, from}, {to_folder, to}},
                    [&] { return NEXT(renameat2)(from_folder, from, to_folder, to, flags); });
}
int mkdir(const char* path, mode_t mode) noexcept {
  return with_fault("mkdir", {{AT_FDCWD, path}}, [&] { return NEXT(mkdir)(path, mode); });
}
int remove(const char* path) noexcept {
  return with_fault("remove", {{AT_FDCWD, path}}, [&] { return NEXT(remove)(path); });
}
int rmdir(const char* path) noexcept {
  return with_fault("remove", {{AT_FDCWD, path}}, [&] { return NEXT(rmdir)(path); });
}
int unlink(const char* path) noexcept {
  return with_fault("remove", {{AT_FDCWD, path}}, [&] { return NEXT(unlink)(path); });
}
int unlinkat(int folder, const char* path, int flags) noexcept {
  return with_fault("remove", {{folder, path}}, [&] { return NEXT(unlinkat)(folder, path, flags); });
}

}  // extern "C"
