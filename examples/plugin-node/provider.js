// The provider: one node group, its machines in memory. The comments say what the autoscaler relies on.
"use strict";

const { CallError } = require("./grpc.js");
const pb = require("./protobuf.js");

const INVALID_ARGUMENT = 3;
const NOT_FOUND = 5;
const RUNNING = 1;
const NOTHING = Buffer.alloc(0); // an empty message

// Options come from cloudgraft's configuration, as JSON.
const options = { id: "node-js", maxSize: 5, ...JSON.parse(process.env.CLOUDGRAFT_PLUGIN_OPTIONS || "{}") };
const LABELS = { "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", pool: options.id };
const RESOURCES = { cpu: "4", memory: "16Gi", pods: "110" };

const machines = new Set(); // the ids of those that exist; each is the providerID of the node it becomes
const made = new Set(); // and of all that ever did: a Node object may outlive its machine for a while

const nodeGroup = (field) =>
  pb.message(field, pb.bytes(1, options.id), pb.number(2, 0), pb.number(3, options.maxSize), pb.bytes(4, "in memory"));

function groupOf(request, field) {
  const fields = pb.read(request);
  const id = pb.textOf(fields, field);
  if (id !== options.id) {
    throw new CallError(NOT_FOUND, `there is no node group '${id}'`);
  }
  return fields;
}

// A fresh node may have no providerID yet; then its name must do. Null for a node that was never ours.
function machineOf(node) {
  const fields = pb.read(node);
  return [pb.textOf(fields, 1), `node-js://${pb.textOf(fields, 2)}`].find((id) => made.has(id)) ?? null;
}

function nodeGroupForNode(request) {
  const [node] = pb.read(request)[1] ?? [];
  const isOurs = node !== undefined && machineOf(node) !== null;
  return isOurs ? nodeGroup(1) : NOTHING; // no group: "not one of mine", which is not an error
}

function targetSize(request) {
  groupOf(request, 1);
  return pb.number(1, machines.size);
}

function increaseSize(request) {
  const delta = pb.int32Of(groupOf(request, 2), 1);
  if (delta <= 0 || machines.size + delta > options.maxSize) {
    throw new CallError(INVALID_ARGUMENT, `cannot grow from ${machines.size} by ${delta}: at most ${options.maxSize}`);
  }
  for (let i = 0; i < delta; i++) {
    const id = `node-js://machine-${made.size + 1}`; // never the same id twice
    machines.add(id);
    made.add(id);
  }
  return NOTHING;
}

function deleteNodes(request) {
  const ids = (groupOf(request, 2)[1] ?? []).map(machineOf);
  if (ids.includes(null)) {
    throw new CallError(INVALID_ARGUMENT, "one of the nodes is not of this group: none was deleted");
  }
  ids.forEach((id) => machines.delete(id)); // one that is gone already is fine
  return NOTHING;
}

function decreaseTargetSize(request) {
  groupOf(request, 2);
  return NOTHING; // every machine that was asked for exists: there is nothing to give back, and that is fine
}

function nodes(request) {
  groupOf(request, 1);
  const instance = (id) => pb.message(1, pb.bytes(1, id), pb.message(2, pb.number(1, RUNNING)));
  return Buffer.concat([...machines].map(instance));
}

function template(request) {
  groupOf(request, 1);
  const quantity = (field, text) => pb.message(field, pb.bytes(1, text));
  const node = Buffer.concat([
    pb.message(1, pb.map(11, LABELS, pb.bytes)), // metadata.labels
    pb.message(3, pb.map(1, RESOURCES, quantity), pb.map(2, RESOURCES, quantity)), // status: capacity, allocatable
  ]);
  // Releases up to 1.34 read the first field, later ones the second: fill both.
  return Buffer.concat([pb.bytes(1, node), pb.bytes(2, node)]);
}

const SERVICE = "/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider";
const methods = {
  [`${SERVICE}/NodeGroups`]: () => nodeGroup(1),
  [`${SERVICE}/NodeGroupForNode`]: nodeGroupForNode,
  [`${SERVICE}/Refresh`]: () => NOTHING,
  [`${SERVICE}/Cleanup`]: () => NOTHING,
  [`${SERVICE}/GPULabel`]: () => NOTHING,
  [`${SERVICE}/GetAvailableGPUTypes`]: () => NOTHING,
  [`${SERVICE}/NodeGroupTargetSize`]: targetSize,
  [`${SERVICE}/NodeGroupIncreaseSize`]: increaseSize,
  [`${SERVICE}/NodeGroupDeleteNodes`]: deleteNodes,
  [`${SERVICE}/NodeGroupDecreaseTargetSize`]: decreaseTargetSize,
  [`${SERVICE}/NodeGroupNodes`]: nodes,
  [`${SERVICE}/NodeGroupTemplateNodeInfo`]: template,
  // Prices and options are left out: code 12, "not implemented", is the right answer for those.
  "/grpc.health.v1.Health/Check": () => pb.number(1, 1), // SERVING
};

module.exports = { methods };
