"""EC2 as far as a list needs it: DescribeInstances with canned pages. moto takes minutes for so many instances.

An instance is described with all that AWS tells of a usual one, for to read that is the larger part of the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

PAGE: Final = 1000  # instances: the most that DescribeInstances gives
_HEAD: Final = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<DescribeInstancesResponse xmlns="{0}"><requestId>r-1</requestId>'
)
_SPACE: Final = "http://ec2.amazonaws.com/doc/2016-11-15/"
_SECOND: Final = "<groupSet><item><groupId>sg-0a1b2c3d4e5f60718</groupId><groupName>nodes</groupName></item></groupSet>"
_INSTANCE: Final = f"""<item><reservationId>r-{{serial}}</reservationId><ownerId>123456789012</ownerId><groupSet/>
<instancesSet><item><instanceId>i-{{serial}}</instanceId><imageId>ami-0123456789abcdef0</imageId>
<instanceState><code>16</code><name>running</name></instanceState>
<privateDnsName>ip-10-0-{{high}}-{{low}}.eu-central-1.compute.internal</privateDnsName><dnsName/><reason/>
<amiLaunchIndex>0</amiLaunchIndex><productCodes/><instanceType>m7i.large</instanceType>
<launchTime>2026-01-01T00:00:00.000Z</launchTime><placement><availabilityZone>eu-central-1a</availabilityZone><groupName/>
<tenancy>default</tenancy></placement><monitoring><state>disabled</state></monitoring>
<subnetId>subnet-0123456789abcdef0</subnetId><vpcId>vpc-0123456789abcdef0</vpcId>
<privateIpAddress>10.0.{{high}}.{{low}}</privateIpAddress><sourceDestCheck>true</sourceDestCheck>{_SECOND}
<architecture>x86_64</architecture><rootDeviceType>ebs</rootDeviceType><rootDeviceName>/dev/sda1</rootDeviceName>
<blockDeviceMapping><item><deviceName>/dev/sda1</deviceName><ebs><volumeId>vol-{{serial}}</volumeId>
<status>attached</status><attachTime>2026-01-01T00:00:00.000Z</attachTime>
<deleteOnTermination>true</deleteOnTermination></ebs></item></blockDeviceMapping>
<virtualizationType>hvm</virtualizationType><clientToken>{{name}}</clientToken><tagSet>{{tags}}</tagSet>
<hypervisor>xen</hypervisor><networkInterfaceSet><item><networkInterfaceId>eni-{{serial}}</networkInterfaceId>
<subnetId>subnet-0123456789abcdef0</subnetId><vpcId>vpc-0123456789abcdef0</vpcId><description/>
<ownerId>123456789012</ownerId><status>in-use</status><macAddress>06:00:00:00:{{mac}}</macAddress>
<privateIpAddress>10.0.{{high}}.{{low}}</privateIpAddress><sourceDestCheck>true</sourceDestCheck>{_SECOND}
<attachment><attachmentId>eni-attach-{{serial}}</attachmentId><deviceIndex>0</deviceIndex><status>attached</status>
<attachTime>2026-01-01T00:00:00.000Z</attachTime><deleteOnTermination>true</deleteOnTermination>
<networkCardIndex>0</networkCardIndex></attachment><privateIpAddressesSet><item>
<privateIpAddress>10.0.{{high}}.{{low}}</privateIpAddress><primary>true</primary></item></privateIpAddressesSet>
<ipv6AddressesSet/><interfaceType>interface</interfaceType></item></networkInterfaceSet><ebsOptimized>true</ebsOptimized>
<cpuOptions><coreCount>1</coreCount><threadsPerCore>2</threadsPerCore></cpuOptions>
<capacityReservationSpecification><capacityReservationPreference>open</capacityReservationPreference>
</capacityReservationSpecification><hibernationOptions><configured>false</configured></hibernationOptions>
<enclaveOptions><enabled>false</enabled></enclaveOptions><metadataOptions><state>applied</state>
<httpTokens>required</httpTokens><httpPutResponseHopLimit>2</httpPutResponseHopLimit><httpEndpoint>enabled</httpEndpoint>
<httpProtocolIpv6>disabled</httpProtocolIpv6><instanceMetadataTags>disabled</instanceMetadataTags></metadataOptions>
<maintenanceOptions><autoRecovery>default</autoRecovery></maintenanceOptions>
<privateDnsNameOptions><hostnameType>ip-name</hostnameType><enableResourceNameDnsARecord>false</enableResourceNameDnsARecord>
<enableResourceNameDnsAAAARecord>false</enableResourceNameDnsAAAARecord></privateDnsNameOptions>
<platformDetails>Linux/UNIX</platformDetails><usageOperation>RunInstances</usageOperation>
<usageOperationUpdateTime>2026-01-01T00:00:00.000Z</usageOperationUpdateTime></item></instancesSet></item>"""


class Ec2Pages(ThreadingHTTPServer):
    """An endpoint on a port of this machine; :meth:`serve_forever` serves. Whoever signs, and how, is not looked at."""

    daemon_threads = True

    def __init__(self, machines: Sequence[Mapping[str, str]]) -> None:
        """``machines`` are their tags."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests = 0
        pages = [machines[start : start + PAGE] for start in range(0, len(machines), PAGE)]
        self._pages = [_page(page, number, len(pages)) for number, page in enumerate(pages)]
        self._nothing = _page((), 0, 1)

    @property
    def url(self) -> str:
        """Where the API is."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, asked: Mapping[str, list[str]]) -> bytes:
        """One page. All instances run: whoever asks for those that have ended gets none."""
        self.requests += 1
        if asked["Action"] != ["DescribeInstances"] or ["terminated"] in asked.values():
            return self._nothing
        number = int(asked.get("NextToken", ["0"])[0])
        return self._pages[number] if self._pages else self._nothing


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Ec2Pages
    wbufsize = -1  # one write for an answer
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Nothing is written for each request."""

    def do_POST(self) -> None:
        """All that boto3 sends is a form."""
        form = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        body = self.server.answer(parse_qs(form))
        self.send_response(200)
        self.send_header("Content-Type", "text/xml;charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _page(machines: Sequence[Mapping[str, str]], number: int, pages: int) -> bytes:
    items = "".join(_instance(tags, number * PAGE + place) for place, tags in enumerate(machines))
    token = f"<nextToken>{number + 1}</nextToken>" if number + 1 < pages else ""
    return f"{_HEAD.format(_SPACE)}<reservationSet>{items}</reservationSet>{token}</DescribeInstancesResponse>".encode()


def _instance(tags: Mapping[str, str], number: int) -> str:
    shown = "".join(f"<item><key>{escape(k)}</key><value>{escape(v)}</value></item>" for k, v in tags.items())
    high, low = divmod(number, 250)
    name, mac = escape(tags["Name"]), f"{high:02x}:{low:02x}"
    return _INSTANCE.format(serial=f"{number:017x}", high=high, low=low + 1, mac=mac, name=name, tags=shown)
