#!/usr/bin/env bash
# The slowest cloud of all: create writes to an administrator, who sets a machine up by hand, in an hour or a week.
# Until then the machine is pending. A request is a directory below $ASK_HOME; the administrator says in it
#   touch NAME/ready     the machine runs, and its node is to carry the providerID byhand://NAME
#   rm -r NAME           the machine is no more, as NAME/remove asks for
set -euo pipefail
tell() { # request, what it is about, subject, text: by mail, once; list tries again what could not be sent
  [ ! -e "$1/told-$2" ] || return 0
  if echo "$4" | timeout 10 ${ASK_MAIL:-mail -s "$3" "${ASK_ADDRESS:-root}"} >&2; then
    touch "$1/told-$2"
  else
    echo "no mail was sent: $4" >&2
  fi
}

remind() { # request
  local name
  name=$(basename "$1")
  [ -e "$1/ready" ] || [ -e "$1/remove" ] ||
    tell "$1" create "a machine, please" "Set up $name with $1/user-data, then: touch $1/ready"
  [ ! -e "$1/remove" ] || tell "$1" remove "a machine less, please" "Take $name down, then: rm -r $1"
}

machine() { # directory
  local name state=pending
  name=$(basename "$1")
  [ ! -e "$1/ready" ] || state=running
  [ ! -e "$1/remove" ] || state=deleting
  printf '{"machineID": "%s", "name": "%s", "providerID": "byhand://%s", "state": "%s", "tags": %s}' \
    "$name" "$name" "$name" "$state" "$(cat "$1/tags")"
}

mkdir -p "$ASK_HOME"
case "$CLOUDGRAFT_OPERATION" in
  create)
    request="$ASK_HOME/$CLOUDGRAFT_NAME"
    if [ ! -e "$request" ]; then # a second create of the same name is the same request
      draft=$(mktemp -d "$ASK_HOME/.draft-XXXXXX")
      echo "$CLOUDGRAFT_TAGS" >"$draft/tags"
      cat "$CLOUDGRAFT_USER_DATA_FILE" >"$draft/user-data"
      mv -T "$draft" "$request" 2>/dev/null || rm -r "$draft" # another create of that name was quicker
    fi
    remind "$request"
    echo "{\"machine\": $(machine "$request")}" ;;
  delete)
    request="$ASK_HOME/$CLOUDGRAFT_NAME"
    if [ -e "$request" ]; then
      touch "$request/remove"
      remind "$request"
    fi ;;
  list)
    echo '{"machines": ['
    for request in "$ASK_HOME"/*/; do
      [ -e "$request/tags" ] || continue
      remind "${request%/}"
      echo "${comma:-}$(machine "${request%/}")" && comma=,
    done
    echo ']}' ;;
esac
