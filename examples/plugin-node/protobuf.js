// Protocol buffers by hand. A message is a row of fields, each a tag (number and kind) and a value; of the kinds a
// provider needs two: 0, a number, and 2, bytes with their length in front (text, and messages in messages).
"use strict";

// -- writing ---------------------------------------------------------------------------------------------------------

function varint(value) {
  let rest = BigInt.asUintN(64, BigInt(value)); // negative numbers are written as 64 bits
  const bytes = [];
  while (rest > 127n) {
    bytes.push(Number(rest & 127n) | 128);
    rest >>= 7n;
  }
  bytes.push(Number(rest));
  return Buffer.from(bytes);
}

const number = (field, value) => (value ? Buffer.concat([varint(field << 3), varint(value)]) : Buffer.alloc(0));

function bytes(field, value) {
  const content = Buffer.from(value);
  return Buffer.concat([varint((field << 3) | 2), varint(content.length), content]);
}

const message = (field, ...fields) => bytes(field, Buffer.concat(fields));

// A map is a repeated message of key (1) and value (2).
const map = (field, entries, write) =>
  Buffer.concat(Object.entries(entries).map(([key, value]) => message(field, bytes(1, key), write(2, value))));

// -- reading ---------------------------------------------------------------------------------------------------------

function readVarint(buffer, start) {
  let value = 0n;
  let position = start;
  for (let shift = 0n; ; shift += 7n) {
    if (position >= buffer.length || shift > 63n) {
      throw new Error("the message ends in the middle of a number");
    }
    const byte = buffer[position++];
    value |= BigInt(byte & 127) << shift;
    if (byte < 128) {
      return [value, position];
    }
  }
}

const FIXED = { 1: 8, 5: 4 }; // kinds of numbers with a fixed length

// The fields of a message: from a field's number to the list of its values.
function read(buffer) {
  const fields = {};
  let position = 0;
  while (position < buffer.length) {
    let tag, value;
    [tag, position] = readVarint(buffer, position);
    const kind = Number(tag & 7n);
    if (kind === 0) {
      [value, position] = readVarint(buffer, position);
    } else {
      let length = FIXED[kind];
      if (kind === 2) {
        [length, position] = readVarint(buffer, position);
      }
      if (length === undefined || position + Number(length) > buffer.length) {
        throw new Error("the message is cut off, or not a message");
      }
      value = buffer.subarray(position, position + Number(length));
      position += Number(length);
    }
    (fields[Number(tag >> 3n)] ??= []).push(value);
  }
  return fields;
}

const textOf = (fields, field) => (fields[field] ? fields[field].at(-1).toString("utf8") : "");
const int32Of = (fields, field) => (fields[field] ? Number(BigInt.asIntN(32, fields[field].at(-1))) : 0);

module.exports = { number, bytes, message, map, read, textOf, int32Of };
