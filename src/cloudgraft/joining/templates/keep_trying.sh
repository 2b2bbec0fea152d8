#!/bin/sh
# Usage: sh keep-trying.sh SECONDS COMMAND...
# Runs the command until it succeeds. It waits longer from try to try, a minute at most, and begins none after SECONDS.
# JOIN_TRY is the number of the try; its output is kept in the log. A try that has not ended after SECONDS is stopped.
# The last one has a minute at least. Fails, and leaves why, when none succeeds.
log=/var/log/cloudgraft-join.log
failed=/var/lib/cloudgraft/join-failed
seconds=$1
shift

now() { cut -d. -f1 /proc/uptime; } # not the time of day: a machine that boots may have to learn it first
say() { echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) cloudgraft: $*" | tee -a "$log"; }

mkdir -p "${log%/*}" "${failed%/*}"
rm -f "$failed"
(umask 077 && : >>"$log") # not for the command: others must be able to read the files that it makes
begin=$(now)
pause=5
JOIN_TRY=1
export JOIN_TRY
while true; do
  tried=$(now)
  left=$((begin + seconds - tried))
  limit=$((left > 60 ? left : 60))
  say "try $JOIN_TRY to join"
  if timeout -k 10 "$limit" "$@" >>"$log" 2>&1; then
    say "joined in try $JOIN_TRY"
    exit 0
  fi
  ended=$(now)
  if [ $((ended - tried)) -ge "$limit" ]; then
    say "try $JOIN_TRY did not end within $limit s and was stopped"
  fi
  left=$((begin + seconds - ended))
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
(umask 077 && echo "$end" | tee "$failed")
exit 1
