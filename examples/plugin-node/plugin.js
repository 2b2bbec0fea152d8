// A cloudgraft provider plugin in plain Node.js: the standard library and nothing else, not even a gRPC package.
//
// cloudgraft starts it, because its configuration says:
//
//   providers:
//     - type: plugin
//       command: [node, examples/plugin-node/plugin.js]
//
// It brings one node group whose machines live in memory. Three small files: this one shakes hands and listens,
// grpc.js turns HTTP/2 streams into calls, provider.js is the provider itself.
"use strict";

const fs = require("node:fs");
const http2 = require("node:http2");
const path = require("node:path");

const { answerCalls } = require("./grpc.js");
const { methods } = require("./provider.js");

// Not a secret: it tells a plugin that it was started by a host, and not by a curious person.
const COOKIE = "76265af6ecbb94f2a08114d0ad471a228a4711d448b2710e6d51175572e86bcc";

if (process.env.CLOUDGRAFT_PLUGIN !== COOKIE) {
  console.error("This program is a cloudgraft plugin: name it as `command` in cloudgraft's configuration.");
  process.exit(1);
}

// Node cannot make certificates, so it uses those that cloudgraft made for this one run.
const tls = (name) => fs.readFileSync(path.join(process.env.CLOUDGRAFT_PLUGIN_TLS_DIR, name));
const server = http2.createSecureServer({
  key: tls("server.key"),
  cert: tls("server.crt"),
  ca: tls("client-ca.crt"),
  requestCert: true, // only cloudgraft has the client certificate ...
  rejectUnauthorized: true, // ... and nobody else gets as far as a call
  ALPNProtocols: ["h2"],
});
answerCalls(server, methods);

const socket = path.join(process.env.PLUGIN_UNIX_SOCKET_DIR, `plugin-${process.pid}`);
server.listen(socket, () => {
  // core version | version of cloudgraft's plugin protocol | network | address | protocol | certificate
  // The certificate is left empty: "I use the one you gave me".
  process.stdout.write(`1|1|unix|${socket}|grpc|\n`);
  console.error("ready"); // everything on stderr is found in cloudgraft's log
});

process.on("SIGTERM", () => process.exit(0));
// Nobody ever writes to our input. When it ends, cloudgraft is gone.
process.stdin.on("end", () => process.exit(0)).resume();
