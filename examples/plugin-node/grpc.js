// gRPC over HTTP/2, as much of it as a plugin needs: unary calls.
//
// A call is a POST to /package.Service/Method. Its body is one message behind five bytes (0 = not compressed, then
// the length), and so is the answer's. How it went stands in the trailers: grpc-status, 0 for OK.
"use strict";

const { NGHTTP2_CANCEL } = require("node:http2").constants;

const NOT_IMPLEMENTED = 12;
const INTERNAL = 13;
const LARGEST_REQUEST = 4 * 1024 * 1024;

class CallError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

// methods: from "/package.Service/Method" to a function from request bytes to response bytes.
function answerCalls(server, methods) {
  server.on("stream", (stream, headers) => {
    const chunks = [];
    let length = 0;
    stream.on("data", (chunk) => {
      length += chunk.length;
      if (length <= LARGEST_REQUEST) {
        chunks.push(chunk);
      } else {
        stream.close(NGHTTP2_CANCEL);
      }
    });
    stream.on("error", () => {}); // the caller went away
    stream.on("end", () => respond(stream, () => call(methods, headers[":path"], Buffer.concat(chunks))));
  });
}

function call(methods, name, body) {
  const method = methods[name];
  if (method === undefined) {
    throw new CallError(NOT_IMPLEMENTED, `this plugin has no ${name}`);
  }
  if (body.length < 5 || body[0] !== 0 || body.readUInt32BE(1) !== body.length - 5) {
    throw new CallError(INTERNAL, "the request is not one uncompressed message");
  }
  return method(body.subarray(5));
}

function respond(stream, answer) {
  if (stream.closed) {
    return;
  }
  let code = 0;
  let message = "";
  let response = null;
  try {
    response = answer();
  } catch (error) {
    if (!(error instanceof CallError)) {
      console.error(error); // the log may have it all; the caller must not
    }
    code = error instanceof CallError ? error.code : INTERNAL;
    message = error instanceof CallError ? error.message : "internal error: see the plugin's log";
  }
  stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
  stream.on("wantTrailers", () => {
    stream.sendTrailers({ "grpc-status": String(code), "grpc-message": encodeURIComponent(message) });
  });
  stream.end(response === null ? undefined : frame(response));
}

function frame(message) {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

module.exports = { answerCalls, CallError };
