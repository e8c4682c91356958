#pragma once
/// A checkpoint of many ranks: each writes the fragments that it owns into a shard of its own, in the background.
///
///   DIR/step_00000012/           published by one rename after all of it is on disk
///     MANIFEST.json              written last
///     index.h5
///     shards/000/rank_00000.h5   one folder for 256 ranks

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/directory.h"
#include "checkpoint/shard.h"
#include "checkpoint/wire.h"

namespace checkpoint {

struct SaveOptions {
  std::string dir;
  Retention retention;
  int64_t staging_bytes = 0;  ///< most memory for copies of what changes before it is written
};

/// One save at a time:
///
///   start()            values are marked; background threads write them
///   before_update()    at most once a step, before values change
///   advance()          between steps, once no rank is_busy(): shards are whole -> rank 0 publishes -> done
class ShardedSave {
 public:
  ShardedSave(const Wire& wire, SaveOptions options);
  ShardedSave(const ShardedSave&) = delete;
  ~ShardedSave();  ///< waits; what is not published is removed

  // Collective: all ranks together. StorageError on every rank where any could not write; it names rank and file, and
  // nothing is left behind.

  /// `owned`: what no other rank has, none empty. Nothing else is under way. Ranks speak with each other the first
  /// time only.
  void start(const RunInfo& info, std::vector<LocalFragment> owned);
  /// Only where no rank is busy. True when the checkpoint is published.
  bool advance();
  void finish();  ///< waits for all that is under way

  // Local.

  void before_update();
  bool is_under_way() const { return phase_ != Phase::idle; }
  bool is_busy() const;                              ///< this rank has work under way
  const std::string& path() const { return path_; }  ///< of the last checkpoint
  /// On rank 0, of the last one published: when it got its name, and what failed that it does not need, `latest` and
  /// the deletion of older ones.
  std::chrono::steady_clock::time_point time_of_publication() const { return time_of_publication_; }
  const std::string& warning() const { return warning_; }

 private:
  enum class Phase { idle, writing, publishing };

  void begin_publishing();
  void publish_in_background(std::vector<std::string> contents, std::vector<Numbers> places);
  void tidy();
  void wait();
  void remove_temporary();

  const Wire& wire_;
  SaveOptions options_;
  RunInfo info_;
  Phase phase_ = Phase::idle;
  std::string nonce_;  // of this run: no other's temporary folder has it
  int64_t num_started_ = 0;
  std::string path_, temporary_;
  std::unique_ptr<SaveMemory> memory_;
  std::unique_ptr<ShardWriter> shard_;  // none: this rank owns nothing
  std::string told_contents_;           // what rank 0 knows of this rank's shards
  std::vector<std::string> contents_;   // on rank 0: of all ranks' shards
  std::thread publisher_;               // rank 0
  std::atomic<bool> is_publishing_ = false;
  std::string publish_error_, warning_;
  std::chrono::steady_clock::time_point time_of_publication_;
};

/// The same at once, without background and retention. Returns the folder.
std::string save_sharded(const Wire& wire, const std::string& dir, const RunInfo& info,
                         std::span<const LocalFragment> owned);

}  // namespace checkpoint
