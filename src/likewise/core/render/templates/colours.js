// Distinct colours for any number of groups.

/** Colour `i` of `many` distinct colours, in OKLCH: lightness, chroma, hue. */
function hue(i, many) {
  const dark = document.documentElement.dataset.theme === "dark";
  const light = (dark ? [0.76, 0.66, 0.85] : [0.6, 0.5, 0.7])[many > 12 ? i % 3 : 0];
  return [light, many > 12 ? [0.14, 0.17, 0.11][i % 3] : 0.15, many > 12 ? i * 137.508 : 30 + 360 * i / many];
}

/** An OKLCH colour as red, green and blue from 0 to 255. */
function rgb([light, chroma, angle]) {
  const a = chroma * Math.cos(angle * Math.PI / 180), b = chroma * Math.sin(angle * Math.PI / 180);
  const l = (light + 0.3963 * a + 0.2158 * b) ** 3, m = (light - 0.1056 * a - 0.0639 * b) ** 3;
  const s = (light - 0.0895 * a - 1.2915 * b) ** 3;
  const linear = [
    4.0767 * l - 3.3077 * m + 0.231 * s,
    -1.2684 * l + 2.6098 * m - 0.3413 * s,
    -0.0042 * l - 0.7034 * m + 1.7076 * s,
  ];
  return linear.map(one => Math.round(255 * clamp(one <= 0.0031 ? 12.92 * one : 1.055 * one ** (1 / 2.4) - 0.055, 0, 1)));
}

const css = colour => `rgb(${rgb(colour).join(",")})`;
