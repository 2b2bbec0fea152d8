#!/bin/sh
# Usage: sh keep-trying.sh SECONDS COMMAND...
# Runs the command until it succeeds. It waits longer from try to try, a minute at most, and begins none after SECONDS.
# Each try is told its number in JOIN_TRY, and its output is kept in the log. Fails, and leaves why, when none succeeds.
umask 077
log=/var/log/cloudgraft-join.log
failed=/var/lib/cloudgraft/join-failed
seconds=$1
shift

now() { cut -d. -f1 /proc/uptime; } # not the time of day: a machine that boots may have to learn it first
say() { echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) cloudgraft: $*" | tee -a "$log"; }

mkdir -p "${log%/*}" "${failed%/*}"
rm -f "$failed"
begin=$(now)
pause=5
JOIN_TRY=1
export JOIN_TRY
while true; do
  say "try $JOIN_TRY to join"
  if "$@" >>"$log" 2>&1; then
    say "joined in try $JOIN_TRY"
    exit 0
  fi
  left=$((begin + seconds - $(now)))
  if [ "$pause" -ge "$left" ]; then
    break
  fi
  say "try $JOIN_TRY failed; the next is in $pause s. The end of what it said:"
  tail -n 4 "$log"
  sleep "$pause"
  JOIN_TRY=$((JOIN_TRY + 1))
  pause=$((pause * 2 > 60 ? 60 : pause * 2))
done
end=$(tail -n 8 "$log")
say "gave up after $JOIN_TRY tries in $(($(now) - begin)) s. All of it is in $log, and this is its end:"
echo "$end" | tee "$failed"
exit 1
