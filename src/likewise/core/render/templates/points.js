// Draw many points on a canvas, by WebGL or, without it, by the 2D context.

const VERTEX = `#version 300 es
in vec2 before; in vec2 now; in vec3 colour; in float rank;
uniform float moved, size, pass; uniform vec2 scale, shift;
out vec4 tint;
void main() {
  bool mine = pass < 0.5 || (pass < 1.5) == (rank < 0.5);
  gl_Position = mine ? vec4(mix(before, now, moved) * scale + shift, 0, 1) : vec4(2, 2, 2, 1);
  gl_PointSize = pass > 1.5 ? size * 1.5 : size;
  tint = vec4(colour, pass > 0.5 && pass < 1.5 ? 0.13 : 0.82);
}`;
const FRAGMENT = `#version 300 es
precision mediump float;
in vec4 tint; out vec4 seen;
void main() {
  float inside = 1.0 - smoothstep(0.38, 0.5, length(gl_PointCoord - 0.5));
  seen = vec4(tint.rgb, 1) * (tint.a * inside);
}`;

/** A fixed random order of 0..n-1, so that no class covers the others. */
function mixedOrder(n) {
  const order = Uint32Array.from({ length: n }, (_, i) => i);
  let state = 1;
  for (let i = n - 1; i > 0; i--) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const j = state % (i + 1);
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

function shader(gl, kind, source) {
  const made = gl.createShader(kind);
  gl.shaderSource(made, source);
  gl.compileShader(made);
  return made;
}

/** A painter by WebGL; null if the browser lacks WebGL. */
function glPainter(canvas) {
  const gl = canvas.getContext("webgl2", { antialias: false, premultipliedAlpha: true });
  if (!gl) return null;
  const program = gl.createProgram();
  gl.attachShader(program, shader(gl, gl.VERTEX_SHADER, VERTEX));
  gl.attachShader(program, shader(gl, gl.FRAGMENT_SHADER, FRAGMENT));
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) return null;
  gl.useProgram(program);
  gl.enable(gl.BLEND);
  gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  const at = name => gl.getUniformLocation(program, name), buffers = {};
  let many = 0, order = new Uint32Array(0);
  const upload = (name, list, width, type, normal) => {
    const mixed = new list.constructor(list.length), place = gl.getAttribLocation(program, name);
    for (let i = 0; i < many; i++) for (let k = 0; k < width; k++) mixed[i * width + k] = list[order[i] * width + k];
    buffers[name] ??= gl.createBuffer();
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers[name]);
    gl.bufferData(gl.ARRAY_BUFFER, mixed, gl.STATIC_DRAW);
    gl.enableVertexAttribArray(place);
    gl.vertexAttribPointer(place, width, type, normal, 0, 0);
  };
  return {
    places(before, now) {
      if (many !== now.length / 2) order = mixedOrder(many = now.length / 2);
      upload("before", before, 2, gl.FLOAT, false);
      upload("now", now, 2, gl.FLOAT, false);
    },
    looks(colour, rank) {
      upload("colour", colour, 3, gl.UNSIGNED_BYTE, true);
      upload("rank", rank, 1, gl.UNSIGNED_BYTE, false);
    },
    draw({ wide, high, unit, x, y }, size, moved, someChosen) {
      gl.viewport(0, 0, canvas.width, canvas.height);
      gl.clear(gl.COLOR_BUFFER_BIT);
      gl.uniform2f(at("scale"), 2 * unit / wide, 2 * unit / high);
      gl.uniform2f(at("shift"), -2 * unit * x / wide, -2 * unit * y / high);
      gl.uniform1f(at("moved"), moved);
      gl.uniform1f(at("size"), size * canvas.width / wide);
      for (const pass of someChosen ? [1, 2] : [0]) {
        gl.uniform1f(at("pass"), pass);
        gl.drawArrays(gl.POINTS, 0, many);
      }
    },
  };
}

/** A painter by the 2D context. It does not animate moving points. */
function plainPainter(canvas) {
  const pen = canvas.getContext("2d");
  let now, colour, rank;
  return {
    places(_, places) { now = places; },
    looks(colours, ranks) { colour = colours; rank = ranks; },
    draw({ wide, high, unit, x, y }, size, _, someChosen) {
      const ratio = canvas.width / wide;
      pen.clearRect(0, 0, canvas.width, canvas.height);
      for (const pass of someChosen ? [0, 1] : [0, 1].slice(0, 1)) {
        pen.globalAlpha = someChosen && !pass ? 0.13 : 0.82;
        for (let i = 0; i < now.length / 2; i++) {
          if (someChosen && (rank[i] > 0) !== (pass > 0)) continue;
          pen.fillStyle = `rgb(${colour[3 * i]},${colour[3 * i + 1]},${colour[3 * i + 2]})`;
          const left = (now[2 * i] - x) * unit + wide / 2, top = (y - now[2 * i + 1]) * unit + high / 2;
          pen.fillRect((left - size / 2) * ratio, (top - size / 2) * ratio, size * ratio, size * ratio);
        }
      }
    },
  };
}
