"""The fakes of clouds with jobs, or with forms of their own: Google, CloudStack, EC2's kind, Rackspace."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from clouds.servers.libcloud_clouds import PAGE, TOKEN, last_of, now
from clouds.servers.libcloud_fake import Answer, Asked, FakeCloud

__all__ = ["FakeCloudstack", "FakeEc2", "FakeGce", "FakeRackspace"]


class FakeGce(FakeCloud):
    """Instances, machine types and operations of one project, behind a login with a signed text."""

    def __init__(self) -> None:
        """Operations are done at the second look."""
        super().__init__()
        self.failure: dict[str, Any] | None = None  # of the next operations
        self.unreachable = ""  # a zone
        self._operations: dict[str, int] = {}
        self._logins = itertools.count(1)

    def answer(self, asked: Asked) -> Answer:
        """One page holds three."""
        if asked.path == "/o/oauth2/token":
            form = dict(parse_qsl(asked.raw.decode()))
            is_signed = form["assertion"].count(".") == 2
            token = {"access_token": f"lent-for-a-while-{next(self._logins)}", "expires_in": 3600}
            return Answer(200, token) if is_signed else Answer(400, {"error": "invalid_grant"})
        if not asked.headers.get("authorization", "").startswith("Bearer lent-for-a-while-"):
            return Answer(401, {"error": {"code": 401, "message": "Invalid Credentials"}})
        path = asked.path.removeprefix("/compute/v1/projects/lab")
        if path.endswith("/machineTypes"):
            return Answer(200, {"items": [{"name": "e2-small", "guestCpus": 2, "memoryMb": 2048}]})
        return self._operation(last_of(path)) if "/operations/" in path else self._instances(asked, path)

    def _instances(self, asked: Asked, path: str) -> Answer:
        if asked.method == "POST":
            return self._create(asked.body, path.split("/")[2])
        if asked.method == "DELETE":
            gone = self.machines.pop(last_of(path), None)
            missing = {"error": {"code": 404, "message": "not found", "errors": [{"reason": "notFound"}]}}
            return self._started() if gone else Answer(404, missing)
        return self._page(int(asked.query.get("pageToken", 0)))

    def _create(self, order: Mapping[str, Any], zone: str) -> Answer:
        if order["name"] in self.machines:
            errors = [{"reason": "alreadyExists"}]
            return Answer(409, {"error": {"code": 409, "message": "The resource already exists", "errors": errors}})
        if "e2-small" not in order["machineType"]:
            return Answer(400, {"error": {"code": 400, "message": "Invalid value for field machineType"}})
        if self.failure is None:
            machine = {"name": order["name"], "status": "RUNNING", "labels": order["labels"]}
            machine |= {"zone": f"https://www.googleapis.com/compute/v1/projects/lab/zones/{zone}"}
            machine |= {"creationTimestamp": f"{now()}.000+00:00", "networkInterfaces": [{"networkIP": "10.2.0.2"}]}
            self.machines[order["name"]] = machine
        return self._started()

    def _started(self) -> Answer:
        name = f"operation-{self.new_id()}"
        self._operations[name] = 0
        return Answer(200, {"name": name, "status": "PENDING", "selfLink": self._link(name)})

    def _operation(self, name: str) -> Answer:
        done = {"name": name, "status": "DONE", "selfLink": self._link(name)}
        return Answer(200, {**done, **(self.failure or {})})

    @staticmethod
    def _link(name: str) -> str:
        return f"https://www.googleapis.com/compute/v1/projects/lab/zones/z/operations/{name}"

    def _page(self, first: int) -> Answer:
        found: Sequence[Any] = list(self.machines.values())[first : first + PAGE]
        items: dict[str, Any] = {"zones/europe-west3-a": {"instances": found}, "zones/b": {"warning": {"code": "NONE"}}}
        if self.unreachable:
            items[self.unreachable] = {"warning": {"code": "UNREACHABLE"}}
        more = {"nextPageToken": str(first + PAGE)} if first + PAGE < len(self.machines) else {}
        return Answer(200, {"items": items, **more})


class FakeCloudstack(FakeCloud):
    """Virtual machines, service offerings and jobs."""

    def __init__(self) -> None:
        """Jobs are done at the first look."""
        super().__init__()
        self.failure = ""  # of the next jobs that deploy
        self._jobs: dict[str, dict[str, Any]] = {}

    def answer(self, asked: Asked) -> Answer:
        """One page holds three, whatever is asked for."""
        command = asked.query.get("command", "")
        key = f"{command.lower()}response"
        if asked.query.get("apiKey") != "an-api-key" or not asked.query.get("signature"):
            return Answer(401, {key: {"errorcode": 401, "errortext": "unable to verify user credentials"}})
        match command:
            case "listServiceOfferings":
                offering = {"id": "so-1", "name": "Small", "memory": 2048, "cpunumber": 2}
                return Answer(200, {key: {"count": 1, "serviceoffering": [offering]}})
            case "deployVirtualMachine":
                return Answer(200, {key: self._deploy(asked.query)})
            case "destroyVirtualMachine":
                return self._destroy(asked.query["id"], key)
            case "queryAsyncJobResult":
                return Answer(200, {key: self._jobs[asked.query["jobid"]]})
        first = (int(asked.query["page"]) - 1) * PAGE
        found = list(self.machines.values())[first : first + PAGE]
        return Answer(200, {key: {"count": len(self.machines), "virtualmachine": found} if found else {}})

    def _deploy(self, order: Mapping[str, str]) -> dict[str, Any]:
        number, job = f"vm-{self.new_id()}", f"job-{self.new_id()}"
        machine = {"id": number, "name": order["name"], "state": "Running", "nic": [{"ipaddress": "10.1.1.2"}]}
        machine |= {"created": f"{now()}+0000", "zoneid": order["zoneid"]}
        self.machines[number] = {**machine, "state": "Error"} if self.failure else machine
        done = {"jobstatus": 1, "jobresult": {"virtualmachine": machine}}
        failed = {"jobstatus": 2, "jobresult": {"errorcode": 533, "errortext": self.failure}}
        self._jobs[job] = failed if self.failure else done
        return {"id": number, "jobid": job}

    def _destroy(self, number: str, key: str) -> Answer:
        if self.machines.pop(number, None) is None:
            text = f"Invalid parameter id value={number} due to incorrect long value format, or entity does not exist"
            return Answer(431, {key: {"errorcode": 431, "errortext": text}})
        job = f"job-{self.new_id()}"
        self._jobs[job] = {"jobstatus": 1, "jobresult": {}}
        return Answer(200, {key: {"jobid": job}})


class FakeEc2(FakeCloud):
    """Instances, for all that speaks like EC2: by GET with the parameters in the URL, or by POST."""

    def name_of(self, machine: Mapping[str, Any]) -> str:
        """Its tag."""
        return str(machine["tags"]["Name"])

    def answer(self, asked: Asked) -> Answer:
        """One page holds three."""
        given = {**asked.query, **dict(parse_qsl(asked.raw.decode()))}
        match given.get("Action"):
            case "RunInstances":
                return self._run(given)
            case "TerminateInstances":
                return self._terminate(given["InstanceId.1"])
            case "DescribeInstanceTypes":
                kind = "<item><name>m1.small</name><cpu>1</cpu><disk>5</disk><memory>256</memory></item>"
                return Answer(200, _EUCALYPTUS.format(f"<instanceTypeDetails>{kind}</instanceTypeDetails>"))
        machines, first = list(self.machines.values()), int(given.get("NextToken", 0))
        page = "".join(f"<item><instancesSet>{_item(one)}</instancesSet></item>" for one in machines[first:][:PAGE])
        following = f"<nextToken>{first + PAGE}</nextToken>" if first + PAGE < len(machines) else ""
        return Answer(200, _EC2.format(f"<reservationSet>{page}</reservationSet>{following}"))

    def _run(self, given: Mapping[str, str]) -> Answer:
        known = next((one for one in self.machines.values() if one["token"] == given["ClientToken"]), None)
        if known is None:
            tags = {}
            for number in itertools.count(1):
                key = f"TagSpecification.1.Tag.{number}"
                if f"{key}.Key" not in given:
                    break
                tags[given[f"{key}.Key"]] = given[f"{key}.Value"]
            known = {"id": f"i-{self.new_id():017d}", "token": given["ClientToken"], "tags": tags, "state": "running"}
            known["since"] = now()
            self.machines[known["id"]] = known
        return Answer(200, _EC2.format(f"<instancesSet>{_item(known)}</instancesSet>"))

    def _terminate(self, number: str) -> Answer:
        if self.machines.pop(number, None) is None:
            error = "<Code>InvalidInstanceID.NotFound</Code><Message>The instance ID does not exist</Message>"
            return Answer(400, f"<Response><Errors><Error>{error}</Error></Errors></Response>")
        state = "<currentState><code>32</code><name>shutting-down</name></currentState>"
        return Answer(200, _EC2.format(f"<instancesSet><item>{state}</item></instancesSet>"))


_EC2: Final = '<Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">{}</Response>'
_EUCALYPTUS: Final = '<Response xmlns="http://msgs.eucalyptus.com/3.3.0">{}</Response>'


def _item(one: Mapping[str, Any]) -> str:
    tags = "".join(
        f"<item><key>{escape(key)}</key><value>{escape(value)}</value></item>" for key, value in one["tags"].items()
    )
    state = f"<instanceState><code>16</code><name>{one['state']}</name></instanceState>"
    where = f"<placement><availabilityZone>a</availabilityZone></placement><launchTime>{one['since']}.000Z</launchTime>"
    return f"<item><instanceId>{one['id']}</instanceId>{state}{where}<tagSet>{tags}</tagSet></item>"


class FakeRackspace(FakeCloud):
    """Rackspace's login, and servers as an old Nova shows them."""

    def answer(self, asked: Asked) -> Answer:
        """One page holds three."""
        if asked.path == "/v2.0/tokens":
            return self._login(asked.body)
        if asked.headers.get("x-auth-token") != "lent":
            return Answer(401, {"unauthorized": {"code": 401, "message": "No valid token provided."}})
        path = asked.path.removeprefix("/v2/1000")
        if path == "/flavors/detail":
            flavor = {"id": "general1-1", "name": "1 GB", "vcpus": 1, "ram": 1024, "disk": 20}
            return Answer(200, {"flavors": [] if "marker" in asked.query else [flavor]})
        return self._servers(asked, path)

    def _servers(self, asked: Asked, path: str) -> Answer:
        if asked.method == "POST":
            number = f"a0b1-{self.new_id()}"
            order = asked.body["server"]
            shown = {"id": number, "name": order["name"], "status": "ACTIVE", "metadata": order["metadata"]}
            self.machines[number] = {**shown, "created": f"{now()}Z", "addresses": {}}
            return Answer(202, {"server": {"id": number}})
        if asked.method == "DELETE":
            gone = self.machines.pop(last_of(path), None)
            return Answer(204) if gone else Answer(404, {"itemNotFound": {"code": 404, "message": "not found"}})
        if path != "/servers/detail":
            return Answer(503, {"serviceUnavailable": {"code": 503, "message": "not now"}})
        ids = list(self.machines)
        marker = asked.query.get("marker", "")
        if marker and marker not in ids:
            return Answer(400, {"badRequest": {"code": 400, "message": f"marker [{marker}] not found"}})
        first = ids.index(marker) + 1 if marker else 0
        return Answer(200, {"servers": [self.machines[one] for one in ids[first : first + PAGE]]})

    @staticmethod
    def _login(body: Mapping[str, Any]) -> Answer:
        if body["auth"]["RAX-KSKEY:apiKeyCredentials"]["apiKey"] != TOKEN:
            return Answer(401, {"unauthorized": {"code": 401, "message": "Unable to authenticate."}})
        compute = {
            "name": "cloudServersOpenStack",
            "type": "compute",
            "endpoints": [{"region": "DFW", "publicURL": "https://dfw.servers.api.rackspacecloud.com/v2/1000"}],
        }
        token = {"id": "lent", "expires": "2099-01-01T00:00:00.000Z", "tenant": {"id": "1000", "name": "1000"}}
        return Answer(200, {"access": {"token": token, "serviceCatalog": [compute], "user": {"id": "1", "roles": []}}})
