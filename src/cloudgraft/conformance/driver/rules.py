"""Lists what the engine relies on in a driver: rules D1, D2, ... with the cost of a breach and the remedy."""

from __future__ import annotations

from collections.abc import Mapping

from cloudgraft.conformance.rules import Rule, must, should, with_ids

_ANSWERS = {
    "D1": must(
        "A driver's traits are data, and never change",
        why="The engine plans by the traits; if they change during a run, it trusts lists that it must not.",
        fix="Set `traits = DriverTraits(...)` on the class, or in start() at the latest, and never again.",
    ),
    "D2": must(
        "list() answers with a sequence of machines, each with an id of its own and a MachineState",
        why="One invalid entry invalidates the whole list: nothing in the cloud is seen, created or deleted.",
        fix="Build each Machine from the cloud's own answer; leave out what has no id; map every state.",
    ),
    "D3": must(
        "create() answers with the machine that it made: its id, the name that was asked for, a MachineState",
        why="The name is how a machine is found again after a crash; under another name it is paid for and unknown.",
        fix="Hand spec.name to the cloud as it is, and return a Machine with that name and the cloud's id.",
    ),
    "D4": must(
        "A new machine is in every list that begins list_delay after its create ended",
        why="A machine that is missing then counts as not created, and a second one is bought.",
        fix="Declare the longest delay that the cloud's list really has in traits.list_delay, and read every page.",
    ),
    "D5": must(
        "A machine keeps its id, and no two machines have the same",
        why="Machines are deleted by this id: the wrong one dies.",
        fix="Use the cloud's own id, not a position in a list, a name that may repeat, or a number of the driver's.",
    ),
    "D6": must(
        "A providerID is the one that the traits promise, never changes once known, and is unique",
        why="The autoscaler matches nodes by it: a node that matches nothing is unregistered, and its machine deleted.",
        fix="Give exactly the node's spec.providerID, or None until it is known; leave traits.provider_id empty if in "
        "doubt.",
    ),
    "D7": must(
        "A machine gets to RUNNING, and its providerID is known by then",
        why="Until both are seen in a list it counts as booting, fails after 15 minutes, and is bought again.",
        fix="Map the cloud's word for a machine that is up to RUNNING, and fill in provider_id in list().",
    ),
    "D8": should(
        "created_at is when the machine was made, with its time zone, and the same in every list; or None",
        why="Of two machines for one intent the older is kept; a wrong time keeps the wrong one.",
        fix="Pass on the cloud's own time as an aware datetime, or leave it None.",
    ),
}
_OWNERSHIP = {
    "D9": must(
        "The marks of a machine come back in list(), byte for byte, as traits.ownership says",
        why="The engine deletes only machines that are proven to be ours: others run until a person finds them.",
        fix="Store spec.tags (or the name) where the cloud keeps them, unshortened; encode what it would not take.",
    ),
    "D10": should(
        "Long and unusual group ids survive in the tags, or are refused as an invalid argument",
        why="A group's machines are found by this tag after a journal was lost.",
        fix="Encode values that the cloud would change or cut, or raise InvalidArgumentError that says what it takes.",
    ),
    "D11": must(
        "A machine of another cluster is shown with that cluster's marks, not with ours",
        why="Two clusters share an account: each would delete the other's nodes.",
        fix="Read the marks from the cloud for every machine; never fill in your own.",
    ),
    "D12": must(
        "Machines of others are left alone",
        why="Machines of other owners disappear.",
        fix="Let delete() change only the machine_id that it was given, and create() and list() no existing machine.",
    ),
}
_ONCE = {
    "D13": must(
        "Where create is idempotent, a second create of one name makes no second machine",
        why="After a lost answer the engine creates again, trusting the trait: two machines, one of them unknown.",
        fix="Send the name as the cloud's client token or unique name; else declare Idempotency.NONE.",
    ),
    "D14": should(
        "A second create is answered as declared: with the first machine, or with AlreadyExistsError",
        why="Another error fails the machine although it is there, and the autoscaler backs its group off.",
        fix="TOKEN: return the first machine. UNIQUE_NAME: raise AlreadyExistsError for the cloud's refusal.",
    ),
    "D15": must(
        "Two creates of one name at the same time make one machine, where create is idempotent",
        why="A cancelled call and its repetition overlap in the cloud: two machines for one intent.",
        fix="Let the cloud refuse the second (token, unique name). To list first and then create is not enough.",
    ),
    "D16": must(
        "A new instance of the driver sees the machines of the old one, and creates none of them again",
        why="After every restart of the server the machines would be lost, or bought again.",
        fix="Keep nothing in the driver that only it knows: machines and tokens belong to the cloud.",
    ),
    "D17": must(
        "Creates for different names may run at the same time; each makes its own machine",
        why="The engine makes eight calls at once: ids and marks that get mixed up delete the wrong machines.",
        fix="Share no half-built request between calls; guard what calls share.",
    ),
    "D18": should(
        "list() works while machines are made and deleted",
        why="During every scale-up the cloud would count as down, and nothing is seen until it ends.",
        fix="Treat a machine that vanishes between two requests as gone, and an incomplete one as pending.",
    ),
}
_INTERRUPTED = {
    "D19": must(
        "A call that is cancelled ends soon: as cancelled, or with its true outcome",
        why="Time limits and the end of the server work by cancellation: a call that ignores it hangs both, and one "
        "that says 'nothing was done' although it was makes the engine buy again.",
        fix="Never catch CancelledError or BaseException without raising it again; clean up in `finally`.",
    ),
    "D20": must(
        "A driver keeps working after calls were cancelled",
        why="After the first timeout the cloud would be dead until the server is restarted.",
        fix="Use `async with` for locks and pools, and close or renew a connection whose call was cancelled.",
    ),
    "D21": must(
        "A cancelled create leaves at most one machine, with our marks, and creating again adds none",
        why="The server may be killed at any moment: half-made machines without marks are never deleted.",
        fix="Make and mark the machine in one request to the cloud, with the name as its token.",
    ),
    "D22": must(
        "No call blocks the event loop",
        why="While it does, the server answers no call: the autoscaler's calls time out, for every cloud.",
        fix="Write a BlockingDriver for a library that blocks, or await asyncio's own calls.",
    ),
}
_DELETION = {
    "D23": must(
        "Deleting a machine that is gone, or never existed, succeeds or raises NotFoundError",
        why="The engine deletes until the cloud has it no more: an error keeps a dead machine in the group.",
        fix="Treat the cloud's 'no such machine' as success.",
    ),
    "D24": must(
        "A deleted machine is gone from the list, or DELETING, list_delay after delete() ended; and goes",
        why="The engine deletes it over and over; a deletion that is only reported still costs money.",
        fix="Raise when the cloud refuses; show DELETING while it works on it; leave out what is gone.",
    ),
    "D25": must(
        "delete() removes the machine with that machine_id, and no other",
        why="Nodes with running pods disappear.",
        fix="Delete by machine_id; never by a prefix, and by name only where the cloud keeps names unique.",
    ),
    "D26": must(
        "A machine can be deleted while it is still being made",
        why="A scale-up that is cancelled at once would leave its machines running.",
        fix="Pass the deletion on; if the cloud says 'not now', raise ConflictError, and it is asked again.",
    ),
    "D27": must(
        "list() has every page",
        why="Machines of the later pages count as gone: their nodes are given up and bought again.",
        fix="Follow the cloud's cursor to its end; raise when a page fails.",
    ),
}
_ERRORS = {
    "D28": must(
        "list() raises when the cloud cannot be asked; it never returns an empty or a partial list instead",
        why="After two empty lists every machine of the cloud counts as gone.",
        fix="Let the error through as UnavailableError, or as DeadlineError when no answer came.",
    ),
    "D29": should(
        "A request that can never work raises InvalidArgumentError",
        why="Any other error is retried, or times out after ten minutes, before the autoscaler tries another group.",
        fix="Read spec.settings with read_settings() before the cloud is called, and translate its 'bad request'.",
    ),
    "D30": should(
        "Quota, stock-out, rate limit and credentials have their own errors",
        why="The class decides: fall back to another group in one loop, slow down, or call a person.",
        fix="Translate the cloud's codes: QuotaExceededError, OutOfStockError, RateLimitedError, AuthenticationError.",
    ),
    "D31": must(
        "An error that reports that nothing was done is correct",
        why="The machine is forgotten, or bought again, while the first one runs.",
        fix="Raise DeadlineError whenever the cloud may have done it: after a timeout, a cut connection, any 5xx.",
    ),
    "D37": must(
        "A create whose answer was lost raises DeadlineError, or answers with the one machine that was made",
        why="After an error that says that nothing was done the engine creates again at once: every 503 of a cloud "
        "that was busy, and did it all the same, buys a double.",
        fix="Raise DeadlineError for every 5xx of a create, also for 503, for a closed connection and for a timeout. "
        "UnavailableError is for a request that never left, such as a refused connection.",
    ),
    "D32": must(
        "No secret is shown: not in an error, not in a machine, not in a repr",
        why="Errors reach the autoscaler's events and logs, which many may read.",
        fix="Hide it with cloudgraft.sdk.secrecy.hide(), and mark the field of Options with repr=False.",
    ),
}
_OFFERS = {
    "D33": should(
        "shapes() has each machine type once, with Quantities for cpu and memory, or is not supported",
        why="The autoscaler simulates with it: pods are sent to nodes that cannot hold them, or never get one.",
        fix="Write amounts as Quantity('4') and Quantity('8Gi'); raise UnsupportedError when the cloud does not say.",
    ),
    "D34": should(
        "prices() has one price per shape, in one currency, as a Decimal, or is not supported",
        why="The price expander compares them as they are, and the guards on spending add them up.",
        fix="Decimal('0.05'), never a float; convert to one currency, or raise UnsupportedError.",
    ),
}
_LIFE = {
    "D35": should(
        "start() and close() may come twice, and close() without start()",
        why="A server that fails to start closes what it has; an error there hides the one that mattered.",
        fix="Let each do nothing when there is nothing to do.",
    ),
    "D36": should(
        "close() ends in a few seconds while calls run, and the calls end too",
        why="The server does not stop in time, and is killed.",
        fix="Close the connections first: the calls that wait on them fail. Wait for nothing without a limit.",
    ),
}

DRIVER_RULES: Mapping[str, Rule] = with_ids(
    (_ANSWERS, _OWNERSHIP, _ONCE, _INTERRUPTED, _DELETION, _ERRORS, _OFFERS, _LIFE)
)
"""Every rule for drivers, by its id, in order."""
