// A driver that dials in, in plain Node.js: the protocol of 2018 (v0), by the field numbers of its .proto, with nothing
// but the standard library. Its machines are files in a directory.
//
//   node driver.js 127.0.0.1:5000 machines
//
// client.js is gRPC over HTTP/2, as much of it as a driver needs; messages are written and read by ../../plugin-node.
"use strict";

const fs = require("node:fs");
const path = require("node:path");

const pb = require("../../plugin-node/protobuf.js");
const { Connection } = require("./client.js");

const [hub, directory] = process.argv.slice(2);
if (hub === undefined || directory === undefined) {
  console.error("usage: node driver.js HUB DIRECTORY");
  process.exit(2);
}
fs.mkdirSync(directory, { recursive: true });

const SERVICE = "/service.Servicegrpc";
const KIND = { name: "node-lab", group: "lab.example", kind: "LabMachineClass", version: "v1" };
const FIRST_WAIT = 1000;
const LONGEST_WAIT = 30000;

// -- the machines ----------------------------------------------------------------------------------------------------

const idOf = (name) => `lab://${name}`;
const nameOf = (id) => path.basename(id); // names are data: they never lead out of the directory

function create(name, size) {
  if (!/^[a-z0-9][a-z0-9.-]*$/.test(name)) {
    throw new Error(`'${name}' is not a name for a machine`);
  }
  fs.writeFileSync(path.join(directory, name), size); // a second time for one name changes nothing
}

const remove = (id) => fs.rmSync(path.join(directory, nameOf(id)), { force: true }); // gone already: fine
const list = () => fs.readdirSync(directory).sort();

// -- the three operations --------------------------------------------------------------------------------------------

// MCMside: 1 operationID, 2 operationType, 3 operationparams {1 class meta {1 name, 2 revision}, 3 machineID, 4 name}
function readOperation(message) {
  const fields = pb.read(message);
  const params = pb.read(fields[3] ? fields[3].at(-1) : Buffer.alloc(0));
  return {
    id: pb.int32Of(fields, 1),
    type: pb.textOf(fields, 2),
    meta: params[1] ? params[1].at(-1) : Buffer.alloc(0),
    machineId: pb.textOf(params, 3),
    machineName: pb.textOf(params, 4),
  };
}

// DriverSide: 1 operationID, 2 operationType, and one of 3 registerResp, 4 createresponse, 5 deleteresponse, 6 list
const answer = (operation, ...content) =>
  Buffer.concat([pb.number(1, operation.id), pb.bytes(2, operation.type), ...content]);

async function carryOut(connection, operation) {
  if (operation.type === "register") {
    const { name, group, kind, version } = KIND;
    return [pb.message(3, pb.bytes(1, name), pb.bytes(2, group), pb.bytes(3, kind), pb.bytes(4, version))];
  }
  if (operation.type === "create") {
    try {
      create(operation.machineName, await sizeOf(connection, operation.meta));
      return [pb.message(4, pb.bytes(1, idOf(operation.machineName)), pb.bytes(2, operation.machineName))];
    } catch (error) {
      return [pb.message(4, pb.bytes(3, error.message))];
    }
  }
  if (operation.type === "delete") {
    remove(operation.machineId);
    return [pb.message(5)];
  }
  if (operation.type === "list") {
    const wanted = list().filter((name) => !operation.machineId || idOf(name) === operation.machineId);
    return [pb.message(6, ...wanted.map((name) => pb.message(1, pb.bytes(1, idOf(name)), pb.bytes(2, name))))];
  }
  return []; // not known: an answer without a content
}

// MachineClass: 1 data (the class as JSON), 2 error
async function sizeOf(connection, meta) {
  const fields = pb.read(await connection.ask(`${SERVICE}/GetMachineClass`, meta));
  if (pb.textOf(fields, 2)) {
    throw new Error(pb.textOf(fields, 2));
  }
  return JSON.parse(pb.textOf(fields, 1)).providerSpec?.size ?? "small";
}

// -- one connection after the other ----------------------------------------------------------------------------------

let connection = null;
let wait = FIRST_WAIT;

function connect() {
  const own = (connection = new Connection(hub));
  own.open(`${SERVICE}/Register`, async (message) => {
    const operation = readOperation(message); // one may take long: the others do not wait for it
    own.send(answer(operation, ...(await carryOut(own, operation))));
    if (operation.type === "register") {
      wait = FIRST_WAIT;
      console.error(`connected to ${hub}: serving ${KIND.kind}`);
    }
  });
  own.whenOver((reason) => {
    const pause = Math.random() * wait; // anything up to it: drivers must not come back all at once
    wait = Math.min(2 * wait, LONGEST_WAIT);
    console.error(`no connection to ${hub}: ${reason}; next try in ${Math.round(pause)} ms`);
    setTimeout(connect, pause);
  });
}

process.on("SIGTERM", () => {
  connection.send(pb.bytes(2, "unregister"));
  connection.end(() => process.exit(0));
});
connect();
