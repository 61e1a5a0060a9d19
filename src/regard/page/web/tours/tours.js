/** The tours that the page brings along; lessons and teachers' files are served. */

import { story } from "regard/tours/story.js";

/** @type {Tour[]} */
export const TOURS = [story];

/** Where someone begins who has not said what to see. */
export const FIRST = story;

/** @param {string} name @returns {Tour | null} */
export const bundled = (name) => TOURS.find((tour) => tour.name === name) ?? null;
