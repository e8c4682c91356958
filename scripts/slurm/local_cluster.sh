#!/usr/bin/env bash
# A Slurm cluster of one node on this machine, for tests and for trying things out; docs/slurm.md shows how.
#   scripts/slurm/local_cluster.sh start|stop|status|env [--folder DIR] [--cpus N]
# All it writes lies in its folder (build/slurm): configuration, key, state, logs, pid files. It has ports of its own,
# so that it lives beside another Slurm. Needs neither systemd nor cgroups; root only where packages are missing.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PATH=$PATH:/usr/sbin:/sbin

folder=$root/build/slurm
cpus=8                # claimed, whatever the machine has: ranks share cores
seconds_to_start=60
seconds_to_end_jobs=30
# Sockets lie in the folder, under names that Slurm makes up (38 characters for PMIx); the kernel takes 107 in all.
longest_folder=60
cannot_install=69     # the exit code, for the test to tell it from a cluster that does not start

fail() { printf 'local_cluster.sh: %s\n' "$@" >&2; exit 1; }

install_packages() {
  [ "$(command -v munged slurmctld slurmd srun | wc -l)" -ne 4 ] || return 0
  "$root/scripts/setup.sh" slurm-wlm munge && return 0
  printf 'local_cluster.sh: %s\n' "the Debian packages slurm-wlm and munge are not here and could not be installed." >&2
  exit "$cannot_install"
}

free_ports() {
  python3 - <<'PYTHON'
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(s.getsockname()[1] for s in sockets))
PYTHON
}

# Slurm 23.11 and newer look for cgroups even where no plugin uses them, unless this says not to; older ones do not
# know the word.
write_cgroup_conf() {
  local oldest=23.11 version
  version=$(slurmd -V | sed 's/[^0-9]*//')
  [ "$(printf '%s\n' "$oldest" "$version" | sort -V | head -n 1)" = "$oldest" ] || return 0
  echo "CgroupPlugin=disabled" >"$folder/cgroup.conf"
}

write_configuration() {
  local user node controller_port node_port memory_mb
  user=$(id -un)
  node=$(uname -n)
  node=${node%%.*}
  read -r controller_port node_port < <(free_ports)
  memory_mb=$(awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo)
  cat >"$folder/slurm.conf" <<CONF
ClusterName=local
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=$controller_port
SlurmdPort=$node_port
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
# cred_expire is also how long a requeued job waits before it starts again (Slurm's default: 120 s).
AuthInfo=socket=$folder/munge.socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
MailProg=/bin/true
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
# The node may claim more CPUs than there are, and comes back by itself after a restart.
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=10
NodeName=$node NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=$memory_mb State=UNKNOWN
PartitionName=local Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
  write_cgroup_conf
}

# Whether the daemon of this name that this folder started still lives: numbers of dead processes come round again.
is_running() {
  local pid
  pid=$(cat "$folder/$1.pid" 2>/dev/null) && [ -n "$pid" ] &&
    tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "$folder/"
}

start_daemon() {
  ! is_running "$1" || return 0
  rm -f "$folder/$1.pid"
  "${@:2}" >>"$folder/$1.start.log" 2>&1 </dev/null || show_logs "$1 did not start"
}

works() { timeout 5 srun --mpi=none --immediate=4 --time=1 --ntasks=1 true >/dev/null 2>&1; }

show_logs() {
  tail -n 15 "$folder"/*.log >&2 || true
  fail "$1; the ends of its logs are above ($folder/*.log)."
}

start() {
  install_packages
  [ ${#folder} -le "$longest_folder" ] ||
    fail "the folder's name has ${#folder} characters: $folder" \
         "  Sockets in it would have longer names than the kernel takes." \
         "  Fix: --folder DIR with at most $longest_folder characters."
  mkdir -p "$folder/state" "$folder/spool"
  chmod 755 "$folder"
  if is_running slurmctld && is_running slurmd && is_running munged && works; then
    echo "The cluster of $folder runs already."
    return
  fi
  is_running slurmctld || is_running slurmd || write_configuration
  local mpi_plugins
  mpi_plugins=$(srun --mpi=list 2>&1 | tr -s '\n\t' ' ')
  grep -qw pmix <<<"$mpi_plugins" || fail "this Slurm has no PMIx plugin. $mpi_plugins"
  [ -s "$folder/munge.key" ] || (umask 077 && head -c 1024 /dev/urandom >"$folder/munge.key")
  # --force: a checkout may lie under folders of another owner; the key and the cluster live no longer than a try-out.
  start_daemon munged munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
    --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" --seed-file="$folder/munge.seed"
  start_daemon slurmctld slurmctld -f "$folder/slurm.conf"
  start_daemon slurmd slurmd -f "$folder/slurm.conf"
  local deadline=$((SECONDS + seconds_to_start))
  until works; do
    [ "$SECONDS" -lt "$deadline" ] || show_logs "no job ran within $seconds_to_start s"
    sleep 0.2
  done
  echo "One node with $cpus CPUs is up. Let this shell's srun, sbatch and squeue find it:"
  echo "  $(env_line)"
}

env_line() { printf 'export SLURM_CONF=%q\n' "$folder/slurm.conf"; }

# Jobs first: slurmd leaves what it started running.
end_jobs() {
  is_running slurmctld || return 0
  local jobs deadline=$((SECONDS + seconds_to_end_jobs))
  while jobs=$(timeout 10 squeue --noheader --format=%A 2>/dev/null) && [ -n "$jobs" ]; do
    # shellcheck disable=SC2086 # one word per job
    timeout 10 scancel --quiet $jobs 2>/dev/null || true
    if [ "$SECONDS" -ge "$deadline" ]; then
      echo "local_cluster.sh: these jobs did not end within $seconds_to_end_jobs s: ${jobs//$'\n'/ }" >&2
      return
    fi
    sleep 0.5
  done
}

stop_daemon() {
  is_running "$1" || return 0
  local pid
  pid=$(cat "$folder/$1.pid")
  kill -TERM "$pid" 2>/dev/null || true
  for _ in $(seq 100); do
    is_running "$1" || return 0
    sleep 0.1
  done
  echo "local_cluster.sh: $1 (process $pid) did not end within 10 s; killing it." >&2
  kill -KILL "$pid" 2>/dev/null || true
}

stop() {
  end_jobs
  for daemon in slurmd slurmctld munged; do stop_daemon "$daemon"; done
  echo "The cluster of $folder is stopped."
}

status() {
  local code=0
  for daemon in munged slurmctld slurmd; do
    if is_running "$daemon"; then
      echo "$daemon runs (process $(cat "$folder/$daemon.pid"))"
    else
      echo "$daemon does not run"
      code=1
    fi
  done
  [ "$code" -ne 0 ] || { timeout 10 sinfo && timeout 10 squeue; } || code=1
  return "$code"
}

usage() {
  sed -n '2,3s/^# *//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

command=${1:-}
shift || true
while [ $# -gt 0 ]; do
  case "$1" in
    --folder) [ $# -ge 2 ] || usage; folder=$(realpath -m "$2"); shift 2 ;;
    --cpus) [ $# -ge 2 ] || usage; cpus=$2; shift 2 ;;
    *) usage ;;
  esac
done
export SLURM_CONF=$folder/slurm.conf
case "$command" in
  start) start ;;
  stop) stop ;;
  status) status ;;
  env) env_line ;;
  *) usage ;;
esac
