# The service `backup` of docker-compose.yml. Writes a tar of authority and state to stdout, while the master runs or not; with
# --restore, reads one from stdin. It unpacks a tar beside the present files, and replaces them only if the tar is complete.
set -eu
cd /backup
say() { echo "backup: $*" >&2; }

case "${1-}" in
  "")
    [ ! -t 1 ] || { say "this would write a tar to your terminal; docs/how-to/back-up-and-restore.md has the command"; exit 2; }
    [ -e state/windrow.db ] || { say "the volume 'state' holds no database; no master has run here yet"; exit 1; }
    # The state as it was at one moment, verified. A copy that a kill has left behind goes first.
    rm -rf state/.saved state/..saved.partial-*
    trap 'rm -rf state/.saved state/..saved.partial-*' EXIT
    windrow backup state/.saved --state state >&2 || { say "nothing was saved"; exit 1; }
    # This script comes last, as a mark: tar does not notice a file that was cut between two members.
    tar -c --transform 's,^state/.saved/state,state,S' authority state/.saved/state -C / backup.sh
    say "done"
    ;;
  --restore)
    # A running master holds this lock.
    if [ -e state/lock ]; then
      exec 9< state/lock
      flock -n 9 || { say "the master is running; first: docker compose down"; exit 1; }
    fi
    for part in authority state; do rm -rf "$part/.unpacked"; mkdir "$part/.unpacked"; done
    # Each part is unpacked in its own volume, so that no move has to copy it.
    tar -x --transform 's,^\(authority\|state\),\1/.unpacked,;s,^backup.sh$,state/.unpacked/.whole,' || unpacked=no
    if [ "${unpacked-}" = no ] || [ ! -e state/.unpacked/.whole ]; then
      rm -rf authority/.unpacked state/.unpacked
      [ "${unpacked-}" = no ] && why="it cannot be unpacked (tar says why, above: a full disk, or a damaged backup)" || why="this is not a whole backup"
      say "$why; nothing was changed"
      exit 1
    fi
    # Windrow makes links only where scripts write; elsewhere, it would write and delete where one leads.
    links=$(find authority/.unpacked state/.unpacked -type l ! -path 'state/.unpacked/outputs/*')
    if [ -n "$links" ]; then
      rm -rf authority/.unpacked state/.unpacked
      say "this backup holds links, so whoever made it may mean harm ($(echo "$links" | head -n 1)); nothing was changed"
      exit 1
    fi
    rm state/.unpacked/.whole
    # From here to the end, the state is incomplete. No master starts while a folder of this name is there.
    for part in state authority; do rm -rf "$part/.restored"; mv "$part/.unpacked" "$part/.restored"; done
    sync
    for part in authority state; do
      find "$part" -mindepth 1 -maxdepth 1 ! -name .restored -exec rm -rf {} +
      find "$part/.restored" -mindepth 1 -maxdepth 1 -exec mv -t "$part" {} +
      rmdir "$part/.restored"
    done
    sync
    say "restored; start it with: docker compose up -d"
    ;;
  *)
    say "unknown option: $1"
    exit 2
    ;;
esac
