#!/usr/bin/env bash
# A private cloud behind cloudgraft: create, delete and list by its own command-line tool, which here is `labctl`.
# What to do is in CLOUDGRAFT_OPERATION; all that is needed for it is in variables, and as JSON on stdin.
set -euo pipefail
PATH="$(dirname "$0"):$PATH" # labctl stands beside this script; the real one is in PATH already

machine() { # id, name, state, tags
  [ "$3" = booting ] && state=pending || state=running
  printf '{"machineID": "%s", "name": "%s", "providerID": "lab://%s", "state": "%s", "tags": %s}' \
    "$1" "$2" "$1" "$state" "$4"
}

refused() { # by labctl, with this exit code: in cloudgraft's words. Any other code: it may have been done, or not.
  case "$1" in
    4) exit 205 ;; # quota
    5) exit 202 ;; # the name is taken
    6) exit 208 ;; # wrong token
    7) exit 200 ;; # no such size
    8) exit 210 ;; # the cloud is away, and did nothing
    *) exit 1 ;;
  esac
}

case "$CLOUDGRAFT_OPERATION" in
  create)
    id=$(labctl create --name "$CLOUDGRAFT_NAME" --size "${CLOUDGRAFT_SETTING_SIZE:-small}" \
      --tags "$CLOUDGRAFT_TAGS" --user-data "$CLOUDGRAFT_USER_DATA_FILE") || refused $?
    echo "{\"machine\": $(machine "$id" "$CLOUDGRAFT_NAME" booting "$CLOUDGRAFT_TAGS")}" ;;
  delete)
    labctl delete "$CLOUDGRAFT_MACHINE_ID" || [ $? = 3 ] || refused 1 ;; # 3: it is gone already
  list)
    found=$(labctl list) || refused $?
    echo '{"machines": ['
    while [ -n "$found" ] && IFS=$'\t' read -r id name state tags; do
      echo "${comma:-}$(machine "$id" "$name" "$state" "$tags")" && comma=,
    done <<<"$found"
    echo ']}' ;;
esac
